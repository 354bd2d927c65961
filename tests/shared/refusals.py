"""The one property of every refusal: one line that names the field, its value and what is allowed; nothing is changed.

A test says what is refused, and this checks the rest. It adds only what the line must also tell, such as the number
that a search came nearest to; the words around that are the message's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from bits import flatten

ALLOWED = re.compile(r"\bmust\b|\bneeds?\b|; ")
"""What is allowed, or, after a semicolon, what to do instead."""


@dataclass
class Refusal:
    """What was said; empty as long as nothing was."""

    said: str = ""


@contextmanager
def refused(
    subject: str | Path,
    value: object = ...,
    *tells: object,
    kind: type[ValueError] = ValueError,
    unchanged: tuple[object, ...] = (),
) -> Iterator[Refusal]:
    """What is done inside must be refused, for the sake of this field and value, or of this file.

    ``...`` stands for a value that the line does not have: it is large, such as a model, and its part is named.
    ``unchanged`` are the models, optimizers, sparsifiers, and files or folders that must be as they were before.
    """
    before = [snapshot(thing) for thing in unchanged]
    refusal = Refusal()
    with pytest.raises(kind) as raised:
        yield refusal
    assert type(raised.value) is kind
    refusal.said = str(raised.value)
    check_line(refusal.said, subject, value, *tells)
    for thing, state in zip(unchanged, before, strict=True):
        assert_same(snapshot(thing), state)


class Commands:
    """Commands of one program that must be refused: exit code 2, the one line, and nothing written.

    They run in this process, in a folder that has but a file `afile`.
    """

    def __init__(
        self,
        main: Callable[[list[str]], None],
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        name: str = "granet",
    ) -> None:
        monkeypatch.chdir(folder)
        (folder / "afile").touch()
        self._main, self._folder, self._capsys, self._name = main, folder, capsys, name

    def __call__(
        self, arguments: str | Iterable[object], subject: str | Path | None, value: object = ..., *tells: object,
        begun: bool = False,
    ) -> None:  # fmt: skip
        """No subject: it is about the command line itself. ``begun`` finds out only after something is written."""
        before, threads = snapshot(self._folder), torch.get_num_threads()
        try:
            with pytest.raises(SystemExit) as stop:
                self._main(arguments.split() if isinstance(arguments, str) else [str(one) for one in arguments])
        finally:
            torch.set_num_threads(threads)
        shown, said = self._capsys.readouterr()
        assert stop.value.code == 2 and said.startswith(f"{self._name}: ") and said.endswith("\n"), said
        if subject is None:
            assert said.count("\n") == 1 and said[:-1].isprintable() and all(str(fact) in said for fact in tells), said
        else:
            check_line(said.removeprefix(f"{self._name}: ")[:-1], subject, value, *tells)
        if not begun:
            assert shown == ""
            assert_same(snapshot(self._folder), before)


def check_line(said: str, subject: str | Path, value: object = ..., *tells: object) -> None:
    """Of a file it must tell the path, or the end of it, and what is wrong; of a field also what is allowed."""
    assert said.isprintable() and said == said.strip(), repr(said)
    if isinstance(subject, Path):
        told = re.match(rf"(.*/)?{re.escape(str(subject))}(, line \d+)?: (.+)", said)
        assert told, f"{said!r} must begin with {subject} and a colon"
        rest = told[3]
    else:
        begins = [subject] if value is ... else [f"{subject}={told}" for told in forms(value)]
        rest = next((said.removeprefix(f"{begin}: ") for begin in begins if said.startswith(f"{begin}: ")), "")
        assert rest, f"{said!r} must begin with {begins[0]!r} and a colon"
        assert ALLOWED.search(rest), f"{said!r} must say what is allowed"
    for fact in tells:
        assert str(fact) in rest, f"{said!r} must tell {fact}"


def forms(value: object) -> list[str]:
    """How a line may name a value: as Python writes it, or, of a large one, its type."""
    listed = [repr(list(value))] if isinstance(value, tuple) else []
    return [repr(str(value)) if isinstance(value, Path) else repr(value), type(value).__name__, *listed]


def snapshot(thing: object) -> dict[tuple[Any, ...], Any]:
    """Everything that a call could change about it."""
    if isinstance(thing, Path):
        folders = {(str(folder),): None for folder, _, _ in os.walk(thing)}
        files = (
            [thing] if os.path.isfile(thing) else [Path(at, name) for at, _, names in os.walk(thing) for name in names]
        )
        return folders | {(str(file),): (os.stat(file).st_mtime_ns, file.read_bytes()) for file in files}
    found: dict[str, Any] = {"state": thing.state_dict()}  # type: ignore[attr-defined]
    parts: list[object] = []
    if isinstance(thing, nn.Module):
        parts = [*thing.modules(), *thing.parameters()]
        found |= {"gradients": [p.grad for p in thing.parameters()], "training": [m.training for m in thing.modules()]}
    elif isinstance(thing, Optimizer):
        parts = [thing]
        found["parameters"] = [id(p) for group in thing.param_groups for p in group["params"]]
    found["hooks"] = [
        (name, list(hooks or ())) for part in parts for name, hooks in vars(part).items() if name.endswith("_hooks")
    ]
    return flatten(found)


def assert_same(now: dict[tuple[Any, ...], Any], before: dict[tuple[Any, ...], Any]) -> None:
    assert now.keys() == before.keys(), now.keys() ^ before.keys()
    for place, value in before.items():
        if torch.is_tensor(value):
            torch.testing.assert_close(now[place], value, rtol=0, atol=0, equal_nan=True, msg=f"{place} has changed")
        else:
            assert now[place] == value, f"{place} has changed"
