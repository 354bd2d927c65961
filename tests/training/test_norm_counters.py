"""Batch norms whose batches are counted apart."""

from __future__ import annotations

import torch
from torch import nn

from granet.training.norm_counters import counted_apart


def test_norms_that_average_over_all_batches_count_them_by_themselves() -> None:
    plain, over_all = nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None)
    model = nn.Sequential(plain, over_all, nn.BatchNorm1d(3, track_running_stats=False))
    with counted_apart(model) as counters:
        for _ in range(2):
            model(torch.randn(4, 3))
    assert len(counters) == 1 and counters[0] is plain.num_batches_tracked
    assert (int(plain.num_batches_tracked), int(over_all.num_batches_tracked)) == (0, 2)
