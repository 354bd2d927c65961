"""What a run reports: one record per epoch, and the final figures; both are checked when read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class EpochRecord:
    """The state after one epoch. Accuracies are shares in [0, 1]; `val_accuracy` is None without a validation part."""

    epoch: int
    step: int
    seconds: float  # of training and evaluation so far, without what comes before the first step
    lr: float  # of the epoch's last step
    train_loss: float
    train_accuracy: float
    val_accuracy: float | None
    test_accuracy: float
    target_sparsity: float
    sparsity: float
    flops: float = 1.0  # of a forward pass now, as a share of the dense network's
    train_flops: float | None = None  # spent so far, as a share of a whole dense training without stretch
    observed: Mapping[str, float | None] | None = None  # what observers saw, by "observer.figure"; None without any


@dataclass(frozen=True)
class Summary:
    """The outcome of a run.

    `test_accuracy` is that of the last epoch: the result. `best_test_accuracy` is the test accuracy at the epoch with
    the best validation accuracy (the first of equals) among those at the final sparsity, since an earlier, denser
    network is not the one asked for; None without a validation part. Neither was chosen by looking at test images.

    `flops_ratio` is the share of FLOPs left in an inference pass, `train_flops` the FLOPs of training as a share of
    dense training for as many epochs as the recipe has without stretch.
    """

    test_accuracy: float
    best_test_accuracy: float | None
    best_epoch: int | None
    sparsity_asked: float
    sparsity: float
    parameters: int
    nonzero: int
    flops_ratio: float
    seconds: float
    train_flops: float | None = None


def best_epoch(records: Sequence[EpochRecord]) -> EpochRecord | None:
    """The epoch that validation would choose, as `Summary` describes it."""
    eligible = [record for record in _at_final_sparsity(records) if record.val_accuracy is not None]
    return max(eligible, key=lambda record: record.val_accuracy or 0.0, default=None)


def best_on_test(records: Sequence[EpochRecord]) -> EpochRecord:
    """The epoch that test images would choose: the paper's protocol, only for comparison with the paper."""
    return max(_at_final_sparsity(records), key=lambda record: record.test_accuracy)


def largest_fall(records: Sequence[EpochRecord]) -> float:
    """By how much the training accuracy fell from one epoch to the next, at most: a lot where training broke down."""
    return max([0.0, *(before.train_accuracy - after.train_accuracy for before, after in pairwise(records))])


def _at_final_sparsity(records: Sequence[EpochRecord]) -> list[EpochRecord]:
    return [record for record in records if record.sparsity == records[-1].sparsity]


def read_epoch(values: Any) -> EpochRecord:
    """The record in a line of `metrics.jsonl`."""
    record = EpochRecord(**checked(EpochRecord, values))
    for name, value in (record.observed or {}).items():
        if value is not None:
            check_number(f"observed {name}", value)
    return record


def read_summary(values: Any) -> Summary:
    """The figures in `summary.json`."""
    return Summary(**checked(Summary, values))


def checked(kind: type, values: Any) -> dict[str, Any]:
    """`values` for the fields of `kind`: of the right type, with NaN for null where a number must be."""
    found = dict(**values)
    for field in fields(kind):
        if field.name not in found:
            continue
        value, allowed = found[field.name], str(field.type)
        if allowed == "str" and not isinstance(value, str):
            raise ValueError(f"{field.name}={value!r} is not a text")
        if allowed == "bool" and not isinstance(value, bool):
            raise ValueError(f"{field.name}={value!r} is neither true nor false")
        if not allowed.startswith(("int", "float")):
            continue
        if value is not None:
            check_number(field.name, value)
        elif "None" not in allowed:
            found[field.name] = math.nan
    return found


def check_number(name: str, value: Any) -> None:
    """A whole number of hundreds of digits is none: nothing can be drawn of it."""
    if not isinstance(value, int | float):
        raise ValueError(f"{name}={value!r} is not a number")
    try:
        float(value)
    except OverflowError as error:
        raise ValueError(f"{name} is too large a number") from error
