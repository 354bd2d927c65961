"""Rice codes of masks against a bit-by-bit decoder and against the entropy."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from granet.checkpoint.mask_codes import LARGEST_K, MaskCode, decode_mask, encode_mask, longest_code


def bits_of(code: list[int]) -> list[int]:
    return [byte >> place & 1 for byte in code for place in range(8)]


def slow_positions(k: int, code: list[int], active: int) -> list[int]:
    """As documented, one bit at a time; the last position is the number of weights."""
    split = math.ceil((active + 1) * k / 8)
    low, high = bits_of(code[:split]), bits_of(code[split:])
    positions, at = [], -1
    for gap in range(active + 1):
        quotient = high.index(1)
        del high[: quotient + 1]
        at += 1 + (quotient << k) + sum(low[gap * k + place] << place for place in range(k))
        positions.append(at)
    assert len(high) < 8 and not any(high)
    return positions


@given(st.lists(st.booleans(), max_size=70) | st.lists(st.sampled_from([False] * 30 + [True]), max_size=700))
def test_codes_come_back(bits: list[bool]) -> None:
    mask = torch.tensor(bits, dtype=torch.bool)
    expected = [place for place, bit in enumerate(bits) if bit]
    coded = encode_mask(mask)
    assert slow_positions(coded.k, coded.code.tolist(), len(expected)) == [*expected, len(bits)]
    assert decode_mask(coded, len(expected), len(bits)).tolist() == expected
    assert len(coded.code) <= longest_code(coded.k, len(expected), len(bits))


@pytest.mark.parametrize("k", range(LARGEST_K + 1))
def test_every_parameter_is_read(k: int) -> None:
    gaps = [0, 1, (1 << k) - 1, 1 << k, 5 << k, 300]
    low = [gap >> place & 1 for gap in gaps for place in range(k)]
    high = [bit for gap in gaps for bit in [0] * (gap >> k) + [1]]
    code = []
    for part in (low, high):
        part += [0] * (-len(part) % 8)
        code += [sum(part[start + place] << place for place in range(8)) for start in range(0, len(part), 8)]
    expected = [sum(gaps[: i + 1]) + i for i in range(len(gaps))]
    assert decode_mask(MaskCode(k, torch.tensor(code, dtype=torch.uint8)), 5, expected[-1]).tolist() == expected[:-1]


def test_one_gap_takes_the_longest_code() -> None:
    coded = encode_mask(torch.tensor([True, True, True] + [False] * 5000))
    assert len(coded.code) == longest_code(coded.k, 3, 5003)


@pytest.mark.parametrize("density", [0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005])
def test_codes_are_near_the_entropy(density: float) -> None:
    mask = torch.rand(400_000, generator=torch.Generator().manual_seed(1)) < density
    share = mask.float().mean().item()
    entropy = -len(mask) * (share * math.log2(share) + (1 - share) * math.log2(1 - share))
    assert 0.995 < 8 * len(encode_mask(mask).code) / entropy < 1.025


@pytest.mark.parametrize("numel", [5000, 64, 30])
def test_no_other_parameter_is_shorter(numel: int) -> None:
    mask = torch.rand(numel, generator=torch.Generator().manual_seed(2)) < 0.03
    ends = [*mask.nonzero().squeeze(1).tolist(), numel]
    gaps = [end - before - 1 for before, end in zip([-1, *ends], ends, strict=False)]
    lengths = [math.ceil(len(gaps) * k / 8) + math.ceil(sum((g >> k) + 1 for g in gaps) / 8) for k in range(9)]
    assert len(encode_mask(mask).code) == min(lengths)


def test_the_bitmask_is_the_code_with_k_0() -> None:
    coded = encode_mask(torch.tensor([True, False, True, True, False, True, True]))
    assert (coded.k, bits_of(coded.code.tolist())) == (0, [1, 0, 1, 1, 0, 1, 1, 1])


def test_logical_order_counts() -> None:
    mask = torch.rand(5, 6, 3, 3, generator=torch.Generator().manual_seed(0)) < 0.1
    strided = mask.to(memory_format=torch.channels_last)
    assert torch.equal(encode_mask(strided).code, encode_mask(mask).code)


@pytest.mark.parametrize(
    ("k", "code", "active", "numel", "message"),
    [
        (0, [], 0, 0, "0 bytes"),
        (2, [0, 7], 4, 4, "2 bytes, 4 active weights need more than 2"),
        (0, [28], 1, 4, "not hold 1 active"),
        (0, [28], 3, 4, "not hold 3 active"),
        (0, [28, 0], 2, 4, "not hold 2 active"),
        (0, [28], 2, 5, "of 4 weights, its shape of 5"),
        (0, [28], 2, 3, "of 4 weights, its shape of 3"),
        (8, [255, 128], 0, 1 << 40, "of 2047 weights"),
    ],
)
def test_a_code_that_does_not_fit_is_refused(k: int, code: list[int], active: int, numel: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_mask(MaskCode(k, torch.tensor(code, dtype=torch.uint8)), active, numel)
