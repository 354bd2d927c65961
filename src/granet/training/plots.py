"""A plot of a run: accuracy and sparsity over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from granet.files import atomic
from granet.training.records import EpochRecord


def plot_run(records: Sequence[EpochRecord], path: Path, title: str) -> None:
    """Write a PNG with the accuracies above and the sparsity below, by epoch. Needs matplotlib."""
    from matplotlib.figure import Figure

    epochs = [record.epoch for record in records]
    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    above.plot(epochs, [100 * record.train_accuracy for record in records], label="train", color="0.7")
    if all(record.val_accuracy is not None for record in records):
        above.plot(epochs, [100 * (record.val_accuracy or 0.0) for record in records], label="validation", color="C0")
    above.plot(epochs, [100 * record.test_accuracy for record in records], label="test", color="C1")
    above.set(title=title, ylabel="accuracy (%)")
    above.legend(loc="lower right")
    below.plot(epochs, [100 * record.target_sparsity for record in records], label="asked", color="0.7", linewidth=4)
    below.plot(epochs, [100 * record.sparsity for record in records], label="achieved", color="C2")
    below.set(xlabel="epoch", ylabel="sparsity (%)", ylim=(-3, 103))
    below.legend(loc="lower right")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=120)
