"""A model as torch.export has it: a program of ATen operators, or one line about the operator that it cannot take."""

from __future__ import annotations

import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils._pytree import tree_leaves

from granet.error_line import first_line
from granet.probe.modes import in_mode

_TORCH = str(Path(torch.__file__).parent)


def program_of(
    model: nn.Module, positional: Sequence[Any], named: Mapping[str, Any], any_batch: bool = False
) -> ExportedProgram:
    """The program of a forward pass in eval mode, which writes to none of its tensors; the model is left as it was.

    ``any_batch`` lets the first axis of every input be of any length, as far as the model does.

    ValueError with one line, which names the operator and the place in the model, if that cannot be done.
    """
    given = tuple(positional), dict(named)
    with aside() as said:
        try:
            with _single_operators(), torch.no_grad(), in_mode(model, training=False):
                shapes = _any_first_axis(model, *given) if any_batch else None
                program = torch.export.export(model, *given, dynamic_shapes=shapes, strict=False)
                functional: ExportedProgram = program.run_decompositions({})
                return functional
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a stranger's forward may raise anything
            why = f"{_operator(error, said.getvalue())}{first_line(error)}{_where(error)}"
            raise ValueError(f"model: {type(model).__name__} cannot be exported: {why}") from error


def _any_first_axis(model: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    shapes: Any = ShapesCollection()  # type: ignore[no-untyped-call]
    batch = Dim("batch")
    for leaf in tree_leaves((positional, named)):
        if isinstance(leaf, Tensor) and leaf.ndim:
            shapes[leaf] = {0: batch}
    return shapes.dynamic_shapes(model, positional, named)


@contextmanager
def _single_operators() -> Iterator[None]:
    """Attention as its single operators: a fused one would hide what is inside."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def aside() -> Iterator[io.StringIO]:
    """What the exporter writes to the terminal when it fails: the operators that it has seen so far.

    It also warns of itself, by names that torch has deprecated.
    """
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()) as said, redirect_stdout(said):
            warnings.simplefilter("ignore")
            yield said
    finally:
        log.setLevel(level)


def _operator(error: BaseException, said: str) -> str:
    """The operator that it failed at, as far as the message or the operators before it tell."""
    found = re.findall(r"torch\.ops\.(\w+\.\w+\.\w+)", f"{said}\n{error}")
    return f"at {found[-1]}: " if found else ""


def _where(error: BaseException) -> str:
    """The last line of code outside torch that ran, in the model's forward or what it calls."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((_TORCH, "<"))]
    frames = [frame for frame in frames if Path(frame.filename) != Path(__file__)]
    if not frames:
        return ""
    last = frames[-1]
    code = f": {last.line}" if last.line else ""
    return f" (in {last.name}, {Path(last.filename).name}:{last.lineno}{code})"
