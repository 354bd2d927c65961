"""Every method on one network, data set and sparsity, beside the paper where it has a number; as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from granet.markdown import markdown_table
from granet.studies.compare import Comparison
from granet.studies.wording import heading, in_words, mean_of

_INTRODUCTION = """\
Every method that trains a network, on VGG-19 and CIFAR-10 at 95 % sparsity, for 160 epochs by the same trainer; dense
networks are the whole one and, as Small-Dense, one so narrow that it has as few weights. Accuracy is that of the last
epoch on test images in percent, over n seeds; in parentheses the difference from the paper's number with its standard
error, where it has one. FLOPs are shares of the whole dense network's; methods that start from a finished run do not
count that. `-` is not run yet.
"""

BELOW = 0.5
"""Points below the paper's number from which on a row is explained."""

WHY: Mapping[str, str] = {
    "SynFlow": (
        "the paper took the number from another work, which trained in its own way. Ours trains on 45,000 of the 50,000"
        " images and reports the last epoch, which puts the dense network 0.1 to 0.5 points below the paper; the best"
        " epoch on the validation images has 92.67. And SynFlow gives every layer the same flow: the last eight layers,"
        " wide and of little use on images of 32 x 32, keep half of the weights that are left, and those in the middle,"
        " where magnitudes put them (DSR, GS, DPF: above 93.4), go short."
    ),
    "SIS": (
        "the number is that of its authors; `granet.inclusion` says what in ours is a reading of their paper. One"
        " tolerance for all layers leaves each of them between 3 and 24 % of its weights, and 7.7 % of the FLOPs, where"
        " magnitudes at the same sparsity leave 25 % (One-shot with fine-tuning: 93.67). Trained anew with the full"
        " learning rate instead of fine-tuned, it reached 91.50."
    ),
}
"""Why a row is that far below."""

REMARKS: Mapping[str, str] = {
    "SET": "changes its masks every 1000 steps, as RigL and GraNet do here; its authors do once an epoch, 351 steps.",
    "Magnitude at initialisation": (
        "the last layer starts from the narrowest distribution, a deviation of 0.01, so that the largest initial"
        " weights of the whole network leave it a single one of 5,120, the least that any layer keeps: one weight has"
        " to tell ten classes apart."
    ),
    "GMP as first published": (
        "prunes from the first step until half of training. GMP prunes until 68.75 %, and globally, so that the two"
        " rows differ in more than what becomes of pruned weights."
    ),
    "Variational dropout": (
        "the KL divergence has a hundredth of its weight in the variational bound; at twice the whole of it 99.96 % are"
        " gone. By itself it ends at 96 %, and the cut to 95 % takes the best of what had gone back in."
    ),
    "One-shot with fine-tuning": "is fine-tuned for as many epochs as the first run, at a learning rate of 0.001.",
}
"""What else a reader of a row should know."""


def page(table: str, comparisons: Sequence[Comparison]) -> str:
    """The whole page, with a line for every row that is far below the paper."""
    lines = [("method", "paper", "ours", "inference FLOPs", "training FLOPs")]
    for one in comparisons:
        printed = "" if one.cell.accuracy is None else f"{one.cell.accuracy:.2f}"
        lines.append((one.cell.row, printed, in_words(one), mean_of(one.test_flops), mean_of(one.train_flops)))
    parts = [heading(table), _INTRODUCTION, markdown_table(lines)]
    if far := below(comparisons):
        parts += [f"## More than {BELOW} points below the paper\n", _list(far, WHY)]
    if remarked := [one.cell.row for one in comparisons if one.last and one.cell.row in REMARKS]:
        parts += ["## Remarks\n", _list(remarked, REMARKS)]
    return "\n".join(parts)


def _list(rows: Sequence[str], of_row: Mapping[str, str]) -> str:
    return "".join(f"- **{row}**: {of_row.get(row, 'not explained yet')}\n" for row in rows)


def below(comparisons: Sequence[Comparison]) -> list[str]:
    """The rows that are far below the paper."""
    return [one.cell.row for one in comparisons if one.difference is not None and one.difference < -BELOW]
