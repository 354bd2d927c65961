"""The record of each update: exact numbers, in order, and back from its state."""

from __future__ import annotations

import json

import pytest
import torch

from devices import DEVICES
from granet import UpdateRecord
from granet.sparsifier.history import History


def filled(device: str = "cpu") -> History:
    history = History(numel=10)
    for step, active, accepted in ((100, [6, 3], True), (200, [1, 2], True), (300, [1, 2], False)):
        whole = torch.tensor(active, device=device)
        history.add(
            step, 0.5, torch.tensor(step // 100, device=device), torch.tensor(4, device=device),
            torch.tensor(accepted, device=device), whole,
        )  # fmt: skip
        whole.zero_()  # what was recorded does not change afterwards
    return history


@pytest.mark.parametrize("device", DEVICES)
def test_records_hold_what_was_added(device: str) -> None:
    assert filled(device).records() == [
        UpdateRecord(100, 0.5, 0.1, 1, 4, skipped=False, active=(6, 3)),
        UpdateRecord(200, 0.5, 0.7, 2, 4, skipped=False, active=(1, 2)),
        UpdateRecord(300, 0.5, 0.7, 3, 4, skipped=True, active=(1, 2)),
    ]


@pytest.mark.parametrize("numel", [3, 10, 49, 1000])
def test_achieved_is_zeros_over_all_exactly(numel: int) -> None:
    """0.1 when one of ten is zero, not 1 - 0.9 = 0.09999999999999998."""
    for active in range(numel + 1):
        history = History(numel)
        history.add(1, 0.0, *(torch.tensor(n) for n in (0, 0)), torch.tensor(True), torch.tensor([active]))
        assert history.records()[0].achieved == (numel - active) / numel


@pytest.mark.parametrize("device", DEVICES)
def test_arrived_tells_each_record_once(device: str) -> None:
    history = filled(device)
    if device == "cuda":
        torch.cuda.synchronize()
    assert [record.step for record in history.arrived()] == [100, 200, 300]
    assert history.arrived() == []
    assert [record.step for record in history.records()] == [100, 200, 300]


def test_a_record_read_in_between_is_still_told() -> None:
    history = filled()
    assert len(history.records()) == 3
    assert [record.step for record in history.arrived()] == [100, 200, 300]


def test_the_list_handed_out_is_the_callers() -> None:
    history = filled()
    history.records().clear()
    assert len(history.records()) == 3


def test_state_is_plain_and_loads_to_the_same() -> None:
    history, other = filled(), History(numel=10)
    other.add(5, 0.1, torch.tensor(0), torch.tensor(0), torch.tensor(True), torch.tensor([5, 5]))
    state = json.loads(json.dumps(history.state()))
    assert state == history.state()
    records = [UpdateRecord.from_dict(record) for record in state]
    other.load(records)
    assert other.records() == history.records()
    records.clear()
    assert len(other.records()) == 3
    assert other.arrived() == []  # told when they came in, in the run before
