"""Every method on one network and data set, beside the paper where it has a number; as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from granet.cli.markdown import markdown_table
from paper.arrangement import arranged
from paper.compare import Comparison
from paper.results_page import exceptions
from paper.wording import heading, in_words, mean_of

_INTRODUCTION = """\
Every method that trains a network, on VGG-19 and CIFAR-10, for 160 epochs by the same trainer; dense networks are the
whole one and, as Small-Dense, one so narrow that it has as few weights. Accuracy is that of the last epoch on test
images in percent, a mean over n seeds; where the paper has a number, which is of the best test epoch, the difference
from it follows in parentheses. Behind ± are standard errors, as the page of [cifar-main](cifar-main.md) explains them:
most rows have one seed, and what one seed varies by is known from those that have three. FLOPs are shares of the whole
dense network's; methods that start from a finished run do not count that.
"""

REMARKS: Mapping[str, str] = {
    "SET": "changes its masks every 1000 steps, as RigL and GraNet do here; its authors do once an epoch, 351 steps.",
    "Magnitude at initialisation": (
        "the last layer starts from the narrowest distribution, a deviation of 0.01, so that the largest initial"
        " weights of the whole network leave it a single one of 5,120, the least that any layer keeps: one weight has"
        " to tell ten classes apart."
    ),
    "GMP as first published": (
        "prunes until half of training, and every layer but the first alike; GMP until 68.75 %, and globally. So the"
        " two rows differ in more than what becomes of pruned weights."
    ),
    "Variational dropout": (
        "the KL divergence has 0.0035, 0.01 and 0.022 of its weight in the variational bound at 90, 95 and 98 %; with"
        " twice the whole weight 99.96 % would go. By itself it ends at 89.00, 96.00 and 98.04 %; `finish()` brings it"
        " to the sparsity asked for: it prunes on, or takes the best of what had gone back in."
    ),
    "Learning-rate rewinding, one round": (
        "at 98 % training broke down in epoch 74, from 81.1 to 12.8 %, and got back to 82.9. One layer has 37 of its"
        " 2.4 million weights left, so that at most 37 channels lead to the classes, and the full learning rate meets"
        " trained weights; with the same masks, Lottery ticket starts from initial weights, and One-shot takes a"
        " hundredth of the rate."
    ),
    "One-shot with fine-tuning": "is fine-tuned for 160 epochs, at a learning rate of 0.001 throughout.",
}
"""What else a reader of a row should know."""


def page(table: str, comparisons: Sequence[Comparison]) -> str:
    """The whole page: a part for each sparsity."""
    parts = [heading(table), _INTRODUCTION]
    dense, columns, rows = arranged(comparisons)
    for place, sparsity in enumerate(columns):
        cells = [*([dense] if dense else []), *(each[place] for each in rows.values())]
        parts += [f"## {sparsity:.0%}\n", _table([one for one in cells if one.last])]
        if missing := [one.cell.row for one in cells if not one.last]:
            parts.append(f"Not run yet: {'; '.join(missing)}.\n")
    parts += exceptions(comparisons)
    run = {one.cell.row for one in comparisons if one.last}
    if remarks := [f"- **{row}**: {remark}\n" for row, remark in REMARKS.items() if row in run]:
        parts += ["## Remarks\n", "".join(remarks)]
    return "\n".join(parts)


def _table(cells: Sequence[Comparison]) -> str:
    lines = [("method", "paper", "ours", "inference FLOPs", "training FLOPs")]
    for one in cells:
        printed = "" if one.cell.accuracy is None else f"{one.cell.accuracy:.2f}"
        lines.append((one.cell.row, printed, in_words(one), mean_of(one.test_flops), mean_of(one.train_flops)))
    return markdown_table(lines)
