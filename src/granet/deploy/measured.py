"""What was measured on this machine, kept in a file: the fastest engine for a plan, threads for it, ways to run layers.

There is one JSON file for each kind of machine, which the processor and the versions of the engines make. Anything in
it may be wrong: what is not as it must be counts as not known.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import torch

from granet.deploy.plan import Plan
from granet.deploy.plan_json import op_record
from granet.deploy.processor import cpu_facts
from granet.files import write_text

FOLDER_VARIABLE = "GRANET_DEPLOY_CACHE"
DEFAULT_FOLDER = Path("~/.cache/granet/deploy")


class Measured:
    """What is known, between reading it and, if something was added, writing it."""

    def __enter__(self) -> Self:
        self._folder = Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).expanduser()
        machine = json.dumps(_machine())
        self._path = self._folder / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"
        self._read = self._now()
        self.engines = dict(self._read["engines"])
        self.layers = dict(self._read["layers"])
        self.threads = dict(self._read["threads"])
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        found = {"engines": self.engines, "layers": self.layers, "threads": self.threads}
        if kind is not None or found == self._read:
            return
        now = self._now()  # others may have written
        content = {"machine": _machine()} | {name: now[name] | known for name, known in found.items()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_text(self._path, json.dumps(content, indent=1))
        except OSError as failure:
            _tell(str(self._folder), failure.strerror or str(failure))

    def engine(self, plan: Plan, threads: int, dtype: torch.dtype) -> str | None:
        return self.engines.get(_key(plan, threads, dtype))

    def keep_engine(self, plan: Plan, threads: int, dtype: torch.dtype, name: str) -> None:
        self.engines[_key(plan, threads, dtype)] = name

    def threads_for(self, plan: Plan, threads: int, dtype: torch.dtype) -> int | None:
        """How many of them granet's kernels are fastest on."""
        known = self.threads.get(_key(plan, threads, dtype), 0)
        return known if 1 <= known <= threads else None

    def keep_threads(self, plan: Plan, threads: int, dtype: torch.dtype, fastest: int) -> None:
        self.threads[_key(plan, threads, dtype)] = fastest

    def _now(self) -> dict[str, dict[str, Any]]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            engines = {key: name for key, name in content["engines"].items() if isinstance(name, str)}
            layers = {key: choice for key, choice in content["layers"].items() if _is_choice(choice)}
            threads = {key: count for key, count in content.get("threads", {}).items() if type(count) is int}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {"engines": {}, "layers": {}, "threads": {}}
        return {"engines": engines, "layers": layers, "threads": threads}


def _is_choice(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(type(number) is int for number in value)


@cache
def _tell(folder: str, why: str) -> None:
    """Once."""
    warnings.warn(
        f"granet: {folder}: cannot be written to ({why}), so what was measured is measured again next time;"
        f" {FOLDER_VARIABLE} names another folder",
        stacklevel=2,
    )


def _key(plan: Plan, threads: int, dtype: torch.dtype) -> str:
    """What makes plans equally fast: all but the values and places of their weights."""
    content = {
        "inputs": plan.inputs,
        "ops": [op_record(op) for op in plan.ops],
        "outputs": plan.outputs,
        "arrays": [(array.shape, len(array.values)) for array in plan.arrays],
        "threads": threads,
        "dtype": str(dtype),
    }
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


@cache
def _machine() -> dict[str, str]:
    return {"processor": _processor(), "system": platform.platform(), **{name: _version(name) for name in _ENGINES}}


_ENGINES = ("granet", "torch", "openvino")


def _processor() -> str:
    if not (facts := cpu_facts()):
        return f"{platform.machine()} {platform.processor()}"
    return " ".join(
        facts.get(name, "") for name in ("model name", "cpu family", "model", "CPU part", "flags", "Features")
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
