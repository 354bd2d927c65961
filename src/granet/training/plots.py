"""A plot of a run: accuracy and sparsity over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from granet import drawing
from granet.training.records import EpochRecord


def plot_run(records: Sequence[EpochRecord], path: Path, title: str) -> None:
    """Write a PNG with the accuracies above and the sparsity below, by epoch. Needs matplotlib."""
    epochs = [record.epoch for record in records]
    validation, test, sparsity = drawing.colours(3)
    with drawing.figure(7, 5) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        above.plot(epochs, [100 * record.train_accuracy for record in records], label="train", color=drawing.MUTED)
        if all(record.val_accuracy is not None for record in records):
            shares = [100 * (record.val_accuracy or 0.0) for record in records]
            above.plot(epochs, shares, label="validation", color=validation)
        above.plot(epochs, [100 * record.test_accuracy for record in records], label="test", color=test)
        above.set(title=title, ylabel="accuracy (%)")
        above.legend(loc="lower right")
        asked = [100 * record.target_sparsity for record in records]
        below.plot(epochs, asked, label="asked", color=drawing.MUTED, linewidth=4, alpha=0.4)
        below.plot(epochs, [100 * record.sparsity for record in records], label="achieved", color=sparsity)
        below.set(xlabel="epoch", ylabel="sparsity (%)", ylim=(-3, 103))
        below.legend(loc="lower right")
        for axes in (above, below):
            axes.grid()
        drawing.save(figure, path)
