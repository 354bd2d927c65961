"""Packed sparse files: writing and reading them, their container, their layout and the codes of masks."""

from granet.checkpoint.packed_file import load, read, save

__all__ = ["load", "read", "save"]
