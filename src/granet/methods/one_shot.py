"""One-shot pruning of a trained net, then fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from granet.methods.lrr import LRR
from granet.methods.registry import register


@register(
    "one-shot",
    paper="Han et al. 2015, arXiv 1506.02626",
    score="magnitude in the first run",
    distributed="global",
    cost="a first run",
)
@dataclass(frozen=True, kw_only=True)
class OneShot(LRR):
    """One-shot pruning: prune a finished first run by magnitude, once, and fine-tune it at a small learning rate.

    The masks and the start are those of learning-rate rewinding. The recipe is what differs: the last learning rate of
    the first run throughout, most often for a fraction of the epochs.
    """
