"""Compaction: a smaller network in place of one with channels that make no difference."""

from granet.deploy.compaction.compact import compact
from granet.deploy.compaction.report import Compaction

__all__ = ["Compaction", "compact"]
