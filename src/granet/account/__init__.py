"""What can be told of a sparse model: its zeros as they are, and one view of a training."""

from granet.account.summary import Summary
from granet.account.zeros_there import ZeroCheck, check_zeros, named_alike, zero_by

__all__ = ["Summary", "ZeroCheck", "check_zeros", "named_alike", "zero_by"]
