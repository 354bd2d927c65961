"""The kernels against the plain path, bit for bit, on scores that are hard on them: masses of ties and of near ties.

Without a GPU, Triton's interpreter runs them, which takes long: the quick suite has the hardest only. Blocks and pieces
are made tiny, so that small examples cross their borders, and so that a few equal scores in a block are many.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from quick import slow_but_for

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
from granet.kernels.digits import KEY
from granet.kernels.selection import TritonRanking
from granet.selection import Candidates, TorchRanking

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = (100, 1, 33)
LAYERS = [SIZES, (96, 16, 48)] if DEVICE == "cuda" else [SIZES]
"""Of the second kind a GPU loads several elements at once."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.kernels.layer_table.BLOCK", 32)
    monkeypatch.setattr("granet.kernels.layer_table.PIECE", 64)


def near(first: int, several: int) -> Callable[[Tensor], Tensor]:
    """So many neighbouring float32 numbers from the one with these bits."""
    return lambda dice: (first + dice % several).to(torch.int32).view(torch.float32)


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "zero": lambda dice: torch.zeros(len(dice)),
    "equal": lambda dice: torch.full((len(dice),), -0.02),
    "zero and one": lambda dice: (dice % 2).float(),
    "mostly zero": lambda dice: torch.where(dice % 7 == 0, dice.float(), 0.0),
    "small integers": lambda dice: (dice % 16 - 8).float(),
    "integers of one exponent": lambda dice: (128 + dice % 128).float(),
    "two neighbours": near(0x3CA3D70A, 2),
    "five neighbours": near(0x3CA3D70A, 5),
    "forty neighbours": near(0x3CA3D70A, 40),
    "neighbours across the last digit": near(0x3CA3D7F0, 40),
    "neighbours across the third digit": near(0x3CA7FFF0, 40),
    "alike in two digits": near(0x3CA00000, 1 << 19),
    "subnormal": near(1, 500),
    "subnormal and zero": lambda dice: torch.where(dice % 3 == 0, near(1, 9)(dice), 0.0),
    "infinite": lambda dice: torch.where(dice % 3 == 0, torch.inf, torch.where(dice % 3 == 1, -torch.inf, 1e38)),
    "not a number": lambda dice: torch.where(dice % 3 == 0, torch.nan, torch.inf),
    "normal": lambda dice: torch.randn(len(dice), generator=torch.Generator().manual_seed(0)),
}


def example(
    scores: str, dtype: torch.dtype, candidates: float, sizes: tuple[int, ...] = SIZES
) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    tensors, masks = [], []
    for size in sizes:
        dice = torch.randint(0, 1 << 30, (size,), generator=generator)
        tensors.append(SCORES[scores](dice).to(dtype))
        masks.append(torch.rand(size, generator=generator) < candidates)
    return tensors, masks


def moved(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.to(DEVICE, copy=True) for tensor in tensors]


DTYPES = [torch.float32, torch.bfloat16, torch.float16]
EVERY_EXAMPLE = [
    *((scores, torch.float32) for scores in SCORES),
    *((scores, dtype) for scores in ("mostly zero", "forty neighbours", "normal") for dtype in DTYPES[1:]),
]
HARDEST = [
    ("neighbours across the third digit", torch.float32),
    ("mostly zero", torch.float16),
]
EXAMPLES = slow_but_for(HARDEST, EVERY_EXAMPLE)


@pytest.mark.parametrize("sizes", LAYERS, ids=str)
@pytest.mark.parametrize(("scores", "dtype"), EXAMPLES)
@pytest.mark.parametrize(("candidates", "share"), [("active", 0.4), ("inactive", 0.6)])
def test_each_layer_alone(
    scores: str, dtype: torch.dtype, candidates: Candidates, share: float, sizes: tuple[int, ...]
) -> None:
    active = candidates == "active"
    tensors, masks = example(scores, dtype, 0.8 if active else 0.2, sizes)
    counts = torch.tensor([int(share * (mask == active).sum()) for mask in masks])
    plain, ours = [mask.clone() for mask in masks], moved(masks)
    TorchRanking(tensors, plain, candidates).select(counts)
    TritonRanking(moved(tensors), ours, candidates).select(counts.to(DEVICE))
    assert all(torch.equal(one, other.cpu()) for one, other in zip(plain, ours, strict=True))


@pytest.mark.parametrize("sizes", LAYERS, ids=str)
@pytest.mark.parametrize(("scores", "dtype"), EXAMPLES)
def test_all_layers_together(scores: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    """And a selection after that, twice asked for and with fewer winners, as prune and regenerate do."""
    tensors, masks = example(scores, dtype, 0.8, sizes)
    floors = torch.tensor([3, 5, 20])
    plain, ours = TorchRanking(tensors, masks, "active"), moved(masks)
    kernels = TritonRanking(moved(tensors), ours, "active")
    for total in (30, 80):
        wanted = plain.global_counts(torch.tensor(total), floors)
        counts = kernels.global_counts(torch.tensor(total, device=DEVICE), floors.to(DEVICE))
        assert counts.tolist() == wanted.tolist()
    plain.select(wanted // 2)
    kernels.select(counts // 2)
    assert all(torch.equal(one, other.cpu()) for one, other in zip(masks, ours, strict=True))


def test_the_numbers_asked_for_are_left_alone() -> None:
    tensors, masks = example("normal", torch.float32, 1.0)
    ranking = TritonRanking(moved(tensors), moved(masks), "active")
    total, floors = torch.tensor(10**9, device=DEVICE), torch.tensor([500] * len(SIZES), device=DEVICE)
    ranking.global_counts(total, floors)
    ranking.select(floors)
    assert (int(total), floors.tolist()) == (10**9, [500] * len(SIZES))


@pytest.mark.slow
def test_more_pieces_than_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece looks back at the ties of all earlier ones, 128 pieces at a time."""
    monkeypatch.setattr("granet.kernels.layer_table.PIECE", 32)
    mask = torch.ones(32 * 135, dtype=torch.bool, device=DEVICE)
    winners = torch.tensor([32 * 133 + 5], device=DEVICE)
    TritonRanking([torch.ones(32 * 135, device=DEVICE)], [mask], "active").select(winners)
    assert mask.cpu().nonzero().squeeze(1).tolist() == list(range(int(winners)))


def test_digits_make_up_a_key() -> None:
    """All bits but the sign, so that no digit is left empty."""
    assert sum(KEY) == 31
