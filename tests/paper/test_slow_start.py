"""What docs/studies.md says of the slow start of ResNet-50 on CIFAR-100, against the logs of the runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from granet.training import Recipe
from granet.training.rundir import run_name
from paper.results import read_log
from paper.tables import EPOCH_110, cells

ROOT = Path(__file__).parents[2]
EPOCHS = (2, 4, 8, 12, 20, 30, 40)


@pytest.fixture(scope="module")
def text() -> str:
    return " ".join((ROOT / "docs/studies.md").read_text(encoding="utf-8").split())


def logs(row: str) -> list[tuple[Recipe, list[dict[str, float]]]]:
    """The recipe and the epochs of each run of the rows whose name begins so."""
    found = []
    for cell in cells("cifar-main"):
        if (cell.model, cell.data) == ("resnet50", "cifar100") and cell.row.startswith(row):
            for recipe in (recipe for seed in range(3) for recipe in cell.recipes(seed)):
                if log := read_log(ROOT / "results", run_name(recipe), dict):
                    found.append((recipe, log["epochs"]))
    return found


def figures(warm_up: bool) -> np.ndarray:
    """For each run from s_i = 0.5: its sparsity, if in float32, if pruned until epoch 110, the last test accuracy in
    percent, and the training losses after ``EPOCHS``."""
    rows = []
    for recipe, epochs in logs("GraNet (s_i=0.5)"):
        if bool(recipe.warm_up) is not warm_up:
            continue
        fields = recipe.method_fields
        late = fields["prune_end"] == EPOCH_110["prune_end"]
        losses = [epochs[epoch - 1]["train_loss"] for epoch in EPOCHS]
        accuracy = 100 * epochs[-1]["test_accuracy"]
        rows.append([fields["sparsity"], recipe.precision == "float32", late, accuracy, *losses])
    return np.array(rows, dtype=float)


@pytest.fixture(scope="module")
def runs() -> np.ndarray:
    """The figures of the runs without a warm-up."""
    return figures(warm_up=False)


def fit(target: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """By least squares: coefficients, their standard errors, and the deviation that is left."""
    x = np.stack(others, axis=1)
    found, (rest,), *_ = np.linalg.lstsq(x, target, rcond=None)
    variance = rest / (len(x) - x.shape[1])
    return found, np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * variance), variance**0.5


def test_what_a_slow_start_goes_with(runs: np.ndarray, text: str) -> None:
    sparsity, float32, late, accuracy = runs.T[:4]
    loss = runs[:, 4 + EPOCHS.index(20)]
    levels = [(sparsity == one).astype(float) for one in np.unique(sparsity)]
    found, error, left = fit(accuracy, loss, late, float32, *levels)
    assert f"Among these {len(runs)} runs" in text
    assert f"0.1 higher after 20 epochs goes with {-found[0] / 10:.2f} ± {error[0] / 10:.2f} points less" in text
    assert f"110 instead of 80 with {found[1]:.2f} ± {error[1]:.2f} points more" in text
    assert f"float32 is no better than bfloat16 ({found[2]:+.2f} ± {error[2]:.2f})" in text
    alone = fit(accuracy, *levels)[2]
    told = f"Runs of one sparsity differ by {alone:.2f} points (standard deviation); with these effects removed, by"
    assert f"{told} {left:.2f}." in text
    faster = -fit(loss, float32, *levels)[0][0]
    assert f"with a faster start, by {faster:.2f} on average" in text


@pytest.mark.parametrize(("float32", "said"), [(0, "in bfloat16"), (1, "in float32 with convolutions in TF32")])
def test_the_losses_after_eight_epochs(runs: np.ndarray, text: str, float32: int, said: str) -> None:
    words = {5: "five", 8: "eight"}
    losses = runs[runs[:, 1] == float32, 4 + EPOCHS.index(8)]
    assert f"{losses.min():.1f} to {losses.max():.1f} {said} ({words[len(losses)]} runs)" in text


def test_the_losses_of_other_starts(text: str) -> None:
    dense, rigl = ([epochs[7]["train_loss"] for _, epochs in logs(row)] for row in ("Dense", "RigL"))
    assert len(rigl) == 3 and max(dense) - min(dense) < 0.05
    assert (
        f"the dense network has {dense[0]:.1f}, and RigL at 90 to 98 % has {min(rigl):.1f} to {max(rigl):.1f}" in text
    )


def test_the_other_epochs_that_were_looked_at(runs: np.ndarray, text: str) -> None:
    within = runs.copy()
    for sparsity in np.unique(runs[:, 0]):
        within[runs[:, 0] == sparsity] -= runs[runs[:, 0] == sparsity].mean(axis=0)
    found = [f"{np.corrcoef(losses, within[:, 3])[0, 1]:.2f}" for losses in within.T[4:]]
    epochs, figures = ([*map(str, one[:-1])] for one in (EPOCHS, found))
    assert f"after {', '.join(epochs)} and {EPOCHS[-1]} epochs" in text
    assert f"are {', '.join(figures)} and {found[-1]}." in text


def test_the_run_that_tested_it(runs: np.ndarray, text: str) -> None:
    (run,) = figures(warm_up=True)
    sparsity, float32, late, accuracy, *losses = run
    loss, before = losses[EPOCHS.index(20)], runs[:, 4 + EPOCHS.index(20)]
    levels = np.unique(runs[:, 0])
    dummies = [(runs[:, 0] == one).astype(float) for one in levels]
    found = fit(runs[:, 3], before, runs[:, 2], runs[:, 1], *dummies)[0]
    foretold = float(found @ [loss, late, float32, *(levels == sparsity)])
    without = runs[(runs[:, :3] == run[:3]).all(axis=1)]
    assert len(without) == 1
    assert f"training loss was {loss:.2f} instead of {without[0, 4 + EPOCHS.index(20)]:.2f}" in text
    assert f"foretell {foretold:.2f} %. It ended at {accuracy:.2f} %" in text
    assert f"{accuracy - without[0, 3]:.2f} points above the run without" in text
    assert f"which have at least {before.min():.2f}" in text
