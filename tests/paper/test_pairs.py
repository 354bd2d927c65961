"""What GraNet is ahead by, against sums written out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paper.compare import Comparison, SeedDeviations, lead, mean_lead
from paper.pairs import pairs, pairs_section
from paper.tables import Cell

DEVIATION = 0.3


def cell(
    row: str, sparsity: float, printed: float | None, *ours: float, deviation: float | None = DEVIATION
) -> Comparison:
    return Comparison(
        Cell("cifar-main", row, "vgg19", "cifar10", sparsity, printed), ours, deviations=SeedDeviations(deviation)
    )


def test_a_lead_and_its_standard_error() -> None:
    one, other = cell("GraNet (s_i=0)", 0.9, 93.8, 93.0, 94.0), cell("GMP", 0.9, 93.6, 93.1)
    points, error = lead(one, other)
    assert points == pytest.approx(0.4)
    assert error == pytest.approx(DEVIATION * math.sqrt(1 / 2 + 1))  # the paper's seeds have no part in it
    assert lead(one, cell("GMP", 0.9, 93.6, 93.1, deviation=None))[1] is None


def test_the_mean_of_leads_is_surer_than_each() -> None:
    points, error = mean_lead([(1.0, 0.3), (2.0, 0.4)])
    assert (points, error) == (1.5, pytest.approx(0.25))
    assert mean_lead([(1.0, 0.3), (2.0, None)]) == (1.5, None)


def test_pairs_where_both_were_run() -> None:
    rows = {
        "RigL": [cell("RigL", 0.9, 93.3, 92.0), cell("RigL", 0.95, 93.0, 92.0)],
        "GraNet (s_i=0.5)": [cell("GraNet (s_i=0.5)", 0.9, 93.7, 93.0), cell("GraNet (s_i=0.5)", 0.95, 93.6)],
        "GMP": [cell("GMP", 0.9, None, 93.0), cell("GMP", 0.95, None, 93.0)],
        "GraNet (s_i=0)": [cell("GraNet (s_i=0)", 0.9, None, 92.5), cell("GraNet (s_i=0)", 0.95, None, 94.0)],
    }
    text = pairs_section([0.9, 0.95], rows)
    each = DEVIATION * math.sqrt(2)
    assert f"| GraNet (s_i=0.5) - RigL | +1.00 ± {each:.2f} (+0.40) | - | +1.00 ± {each:.2f} (+0.40) |" in text
    both = f"+0.25 ± {each / math.sqrt(2):.2f}"
    assert f"| GraNet (s_i=0) - GMP | -0.50 ± {each:.2f} | +1.00 ± {each:.2f} | {both} |" in text


def test_one_pair_is_enough_and_counts_where_both_were_run() -> None:
    rows = {
        "GMP": [cell("GMP", 0.9, 93.6, 93.0), cell("GMP", 0.95, 93.5)],
        "GraNet (s_i=0)": [cell("GraNet (s_i=0)", 0.9, 93.8, 93.5), cell("GraNet (s_i=0)", 0.95, 93.7, 93.4)],
    }
    told = f"+0.50 ± {DEVIATION * math.sqrt(2):.2f} (+0.20)"
    assert f"| GraNet (s_i=0) - GMP | {told} | - | {told} |" in pairs_section([0.9, 0.95], rows)


def test_the_mean_of_the_paper_is_over_what_it_prints_for_both() -> None:
    printed = {"GraNet (s_i=0)": (93.8, 93.5, None, 93.0), "GMP": (93.6, 93.5, 92.0, None)}
    rows = {name: [cell(name, 0.9, number, 93.0) for number in numbers] for name, numbers in printed.items()}
    (differences,) = pairs(rows).values()
    assert [text.partition(" (")[2] for text in differences] == ["+0.20)", "+0.00)", "", "", "+0.10)"]


def test_a_run_that_broke_down_has_no_part_in_the_mean() -> None:
    rows = {
        "GMP": [cell("GMP", 0.9, 93.6, 93.0), cell("GMP", 0.95, 93.5, 93.0)],
        "GraNet (s_i=0)": [cell("GraNet (s_i=0)", 0.9, 93.8, 93.5), cell("GraNet (s_i=0)", 0.95, 93.7, 64.0)],
    }
    assert "broke down" not in pairs_section([0.9, 0.95], rows)
    rows["GraNet (s_i=0)"][1] = replace(rows["GraNet (s_i=0)"][1], falls=(19.0,))
    text = pairs_section([0.9, 0.95], rows)
    told = f"+0.50 ± {DEVIATION * math.sqrt(2):.2f} (+0.20)"
    assert f"| GraNet (s_i=0) - GMP | {told} | -29.00 (+0.20) | {told} |" in text
    assert "The mean leaves out the sparsities at which a run broke down." in text
    only = {row: cells[1:] for row, cells in rows.items()}
    assert "| GraNet (s_i=0) - GMP | -29.00 (+0.20) | - |" in pairs_section([0.95], only)


def test_without_a_pair_there_is_nothing_to_say() -> None:
    assert pairs_section([0.9], {"GMP": [cell("GMP", 0.9, 93.6, 93.1)]}) == ""
    assert (
        pairs_section(
            [0.9], {"GMP": [cell("GMP", 0.9, 93.6, 93.1)], "GraNet (s_i=0)": [cell("GraNet (s_i=0)", 0.9, 94)]}
        )
        == ""
    )
