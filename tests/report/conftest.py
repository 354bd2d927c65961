"""Run folders to report on, made by hand so that every number is known."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pytest

from granet.training import Recipe

LAYERS = [
    {"name": "features.0.weight", "shape": [4, 1, 3, 3], "weights": 36, "active": 27},
    {"name": "classifier.weight", "shape": [10, 16], "weights": 160, "active": 22},
]


def epoch(number: int, **values: Any) -> dict[str, Any]:
    record = {"epoch": number, "step": 20 * number, "seconds": 1.5 * number, "lr": 0.1, "train_loss": 1 / number}
    record |= {"train_accuracy": 0.5, "val_accuracy": 0.4 + 0.1 * number, "test_accuracy": 0.6 + 0.01 * number}
    return record | {"target_sparsity": 0.75, "sparsity": 0.75} | values


def update(step: int, active: list[int], skipped: bool = False) -> dict[str, Any]:
    achieved = 1 - sum(active) / 196
    counts = {"pruned": 3, "regrown": 2, "skipped": skipped, "active": active}
    return {"step": step, "target": 0.75, "achieved": achieved, **counts}


SUMMARY = {
    "test_accuracy": 0.63,
    "best_test_accuracy": 0.63,
    "best_epoch": 3,
    "sparsity_asked": 0.75,
    "sparsity": 0.75,
    "parameters": 210,
    "nonzero": 63,
    "flops_ratio": 0.321,
    "seconds": 4.5,
}


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    """A finished run of three epochs and two updates; `finished=False` stops it after the epochs.

    `flops` are the shares of a forward pass and of training at each epoch; runs of before did not record them.
    """

    def write(
        folder: Path,
        recipe: Recipe | None = None,
        epochs: int = 3,
        finished: bool = True,
        flops: Sequence[tuple[float, float]] = (),
    ) -> Path:
        recipe = recipe or Recipe(method_fields={"sparsity": 0.75}, epochs=3)
        folder.mkdir(parents=True)
        environment = {"granet": "0.1", "torch": "2.13.0", "device": "a device"}
        (folder / "config.json").write_text(json.dumps({"recipe": asdict(recipe), "environment": environment}))
        shares = [{"flops": now, "train_flops": spent} for now, spent in flops] or [{}] * epochs
        write_lines(folder / "metrics.jsonl", [epoch(number, **share) for number, share in enumerate(shares, start=1)])
        if finished:
            (folder / "summary.json").write_text(json.dumps(SUMMARY))
        if finished and recipe.method != "dense":
            (folder / "layers.json").write_text(json.dumps(LAYERS))
            write_lines(folder / "updates.jsonl", [update(20, [36, 160]), update(40, [27, 22])])
        return folder

    return write


@pytest.fixture
def words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not drawn, which takes most of the time of a page."""

    def nothing(figure: object, file: IO[Any], format: str, **options: object) -> None:
        file.write("<svg></svg>" if format == "svg" else b"")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", nothing)


@pytest.fixture
def make_run(tmp_path: Path, write_run: Callable[..., Path]) -> Callable[..., Path]:
    """`write_run` to a name in `runs`."""
    return lambda name="one", *arguments, **fields: write_run(tmp_path / "runs" / name, *arguments, **fields)
