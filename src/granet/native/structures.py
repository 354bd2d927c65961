"""The structures of granet_native.h."""

from __future__ import annotations

import ctypes


class ConvStructure(ctypes.Structure):
    _fields_ = (
        ("input", ctypes.c_int32),
        ("residual", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("out_channels", "kernel_h", "kernel_w", "stride_h", "stride_w")),
        *((name, ctypes.c_int64) for name in ("padding_h", "padding_w", "dilation_h", "dilation_w", "groups")),
        ("relu", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("positions", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


class PoolStructure(ctypes.Structure):
    _fields_ = (
        ("input", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("kernel_h", "kernel_w", "stride_h", "stride_w")),
        *((name, ctypes.c_int64) for name in ("padding_h", "padding_w", "count_padding")),
    )


class ChoiceStructure(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("rows", "tile_h", "tile_w", "slice"))


class StepStructure(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_int32),
        ("tunable", ctypes.c_int32),
        ("weights", ctypes.c_int64),
        ("multiply_adds", ctypes.c_int64),
        ("text", ctypes.c_char * 128),
    )


STRUCTURES = (ConvStructure, PoolStructure, ChoiceStructure, StepStructure)
"""As ``granet_struct_size`` numbers them."""
