"""Which epoch counts as the best, and which may not."""

from dataclasses import asdict

import pytest

from granet.training.records import EpochRecord, best_epoch, best_on_test, read_epoch


def record(epoch: int, val: float | None, test: float, sparsity: float) -> EpochRecord:
    return EpochRecord(epoch, epoch * 10, 1.0, 0.1, 0.5, 0.9, val, test, sparsity, sparsity)


def test_best_epoch_is_chosen_by_validation_at_the_final_sparsity() -> None:
    records = [
        record(0, 0.98, 0.98, 0.95),  # better, but sparser, as before weights are regrown
        record(1, 0.99, 0.99, 0.5),  # better, but denser
        record(2, 0.90, 0.97, 0.9),  # best on test, which has no say
        record(3, 0.95, 0.93, 0.9),
        record(4, 0.95, 0.96, 0.9),  # equal: the first wins
        record(5, 0.94, 0.94, 0.9),
    ]
    best = best_epoch(records)
    assert best is not None and best.epoch == 3
    assert best_on_test(records).epoch == 2  # the paper's protocol


def test_no_validation_part_no_best_epoch() -> None:
    assert best_epoch([record(1, None, 0.9, 0.0)]) is None


def test_an_accuracy_of_zero_is_one_to_choose_from() -> None:
    best = best_epoch([record(1, 0.0, 0.2, 0.0), record(2, 0.0, 0.1, 0.0)])
    assert best is not None and best.epoch == 1


def test_the_first_of_equal_test_epochs_is_the_best() -> None:
    records = [record(1, None, 0.99, 0.5), *(record(epoch, None, 0.9, 0.9) for epoch in (2, 3))]
    assert best_on_test(records).epoch == 2


def test_figures_after_one_that_is_absent_are_checked_too() -> None:
    values = asdict(record(1, None, 0.9, 0.0)) | {"train_flops": "few"}
    del values["flops"]
    with pytest.raises(ValueError, match=r"^train_flops='few' is not a number$"):
        read_epoch(values)


def test_a_record_from_before_flops_were_counted_is_of_a_dense_pass() -> None:
    old = record(1, None, 0.9, 0.0)
    assert (old.flops, old.train_flops, old.observed) == (1.0, None, None)
