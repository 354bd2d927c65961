"""The progress bar."""

import io
from dataclasses import replace

from rich.console import Console

from granet.cli.console import watch
from granet.training import EpochRecord

RECORD = EpochRecord(1, 19, 0.5, 0.1, 0.3, 0.9, None, 0.91, 0.5, 0.5)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown_after(epochs: list[int], of: int) -> str:
    """The bar when a run that takes 90 seconds for an epoch is left after these."""
    clock = Clock()
    text = io.StringIO()

    def train():
        for epoch in epochs:
            clock.now += 90
            yield replace(RECORD, epoch=epoch)

    console = Console(file=text, width=120, force_terminal=True, color_system=None, get_time=clock)
    records = watch(console, "granet", train(), of)
    for _ in epochs:
        next(records)
    records.close()
    return [line for line in text.getvalue().splitlines() if "epoch" in line][-1]


def test_the_time_left_is_that_of_the_epochs_left() -> None:
    """Also with epochs longer than the half minute that rich looks back by itself."""
    bar = shown_after([1, 2, 3], of=11)
    assert "epoch 3/11  test 91.0%  sparsity 50.0%" in bar
    assert "0:12:00 left" in bar  # 8 epochs of 90 seconds


def test_a_resumed_run_is_not_taken_for_a_fast_one() -> None:
    assert "-:--:-- left" in shown_after([8], of=11)
    assert "0:01:30 left" in shown_after([8, 9, 10], of=11)


def test_a_finished_run_says_how_long_it_took() -> None:
    assert "0:04:30 taken" in shown_after([1, 2, 3], of=3)
