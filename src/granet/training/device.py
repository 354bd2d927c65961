"""What a run asks of its device, and the error when its memory is not enough."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def prepare_device(device: torch.device, deterministic: bool) -> None:
    """Let a GPU choose its fastest kernels, or make it repeat results exactly.

    In torch this is a setting of the whole process. The GPU also becomes this thread's current one: the step is
    captured from a stream of the current GPU, and a stream of another GPU would capture nothing.
    """
    if device.type != "cuda":
        return
    if device.index is not None:
        torch.cuda.set_device(device)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    torch.backends.cudnn.deterministic = deterministic
    if deterministic:
        torch.backends.cudnn.benchmark = False


@contextmanager
def kernels_tried() -> Iterator[None]:
    """In this context cuDNN tries its kernels and takes the fastest, unless runs have to be repeatable.

    Only where no other run shares the GPU: after each trial torch frees its cached memory, for which the whole device
    has to be idle. Work that runs once an epoch is not worth a trial for each shape in each thread.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def has_gpu_to_itself() -> bool:
    """Whether this run has the GPU to itself: runs side by side do not train on the default stream."""
    return torch.cuda.current_stream() == torch.cuda.default_stream()


@contextmanager
def enough_memory(device: torch.device) -> Iterator[None]:
    """Out of device memory becomes a ValueError that says how much there was and how much more was wanted."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error))
        used = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        free, total = torch.cuda.mem_get_info(device) if device.type == "cuda" else (0, 0)
        raise ValueError(
            f"device={str(device)!r}: not enough memory; this run needs more than {_gib(used)} and "
            f"{wanted[1] if wanted else 'more'} on top, and {_gib(free)} of {_gib(total)} are free. "
            "A smaller batch_size, or fewer runs at once, needs less"
        ) from error


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
