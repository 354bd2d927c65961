"""Packed sparse files, written and read whole; behind that the container, the layout and the codes of masks."""

from granet.checkpoint.packed_file import load, read, save

__all__ = ["load", "read", "save"]
