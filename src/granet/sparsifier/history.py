"""What happened at each mask update, recorded without making the host wait for the device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class UpdateRecord:
    """One mask update: numbers of weights are exact."""

    step: int
    target: float
    """The sparsity the method asked for."""
    achieved: float
    """The sparsity after the update."""
    pruned: int
    """Weights taken away by pruning, or dropped and not grown again."""
    regrown: int
    """Weights dropped and grown again, in the same or another place."""
    skipped: bool
    """A gradient was not finite, so nothing was changed."""
    active: tuple[int, ...]
    """Active weights of each layer, in the order of ``sparsifier.layers``."""
    ever_active: float | None = None
    """R_s, the share of weights that have been active at some time so far; None if the method does not track it."""

    @staticmethod
    def from_dict(values: dict[str, Any]) -> UpdateRecord:
        """The record that ``dataclasses.asdict`` took apart."""
        return UpdateRecord(**(values | {"active": tuple(values["active"])}))


class History:
    """A list of records whose newest entries may still be on their way from the device."""

    def __init__(self, numel: int) -> None:
        self._numel = numel
        self._done: list[UpdateRecord] = []
        self._coming: list[tuple[int, float, bool, Tensor, torch.cuda.Event | None]] = []
        self._told = 0

    def add(
        self,
        step: int,
        target: float,
        pruned: Tensor,
        regrown: Tensor,
        accepted: Tensor,
        active: Tensor,
        ever_active: Tensor | None = None,
    ) -> None:
        ever = pruned if ever_active is None else ever_active  # a placeholder
        numbers = torch.hstack([pruned, regrown, accepted.long(), ever, active])
        event = None
        if numbers.device.type == "cuda":
            host = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
            numbers = host.copy_(numbers, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._coming.append((step, target, ever_active is not None, numbers, event))

    def arrived(self) -> list[UpdateRecord]:
        """Records that have come in since the last call; does not wait."""
        while self._coming and _is_here(self._coming[0][-1]):
            self._receive()
        new, self._told = self._done[self._told :], len(self._done)
        return new

    def records(self) -> list[UpdateRecord]:
        """All records; waits for those still on their way."""
        while self._coming:
            self._receive()
        return list(self._done)

    def _receive(self) -> None:
        step, target, tracked, numbers, event = self._coming.pop(0)
        if event is not None:
            event.synchronize()
        pruned, regrown, accepted, ever, *active = numbers.tolist()
        achieved = (self._numel - sum(active)) / self._numel
        ever_active = ever / self._numel if tracked else None
        self._done.append(
            UpdateRecord(step, target, achieved, pruned, regrown, not accepted, tuple(active), ever_active)
        )

    def state(self) -> list[dict[str, Any]]:
        return [dataclasses.asdict(record) | {"active": list(record.active)} for record in self.records()]

    def load(self, records: list[UpdateRecord]) -> None:
        self._coming.clear()
        self._done = list(records)
        self._told = len(records)


def _is_here(event: torch.cuda.Event | None) -> bool:
    return event is None or bool(event.query())  # type: ignore[no-untyped-call]
