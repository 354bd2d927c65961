"""What every training step does to gradients: zero those of inactive weights, and check whether all are finite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

import torch
from torch import Tensor

from granet.kernels import runs_kernels
from granet.tensors.row import contiguous, kinds

_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def zero_inactive(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """tensor <- tensor * mask for all (tensor, mask) pairs, in place, one call for each device and dtype.

    The multiplication is done on the bits, as integers: a NaN or inf at an inactive position becomes 0 too
    (NaN * 0 is NaN), so that inactive weights stay exactly zero whatever a gradient holds. It is also several times
    faster than multiplying floats by a bool mask. On a GPU a Triton kernel writes the zeros of all layers at once.
    """
    for device, (tensors, masks) in _by_kind(*zip(*pairs, strict=True)):
        check_together(device, masks)
        kernels = runs_kernels(device) and not _is_capturing(device)
        by_kernel = _in_same_order(tensors, masks) if kernels else [False] * len(tensors)
        if any(by_kernel):
            from granet.kernels import masking as masking_kernels

            masking_kernels.zero_inactive(list(compress(tensors, by_kernel)), list(compress(masks, by_kernel)))
        if not all(by_kernel):
            others = [not one for one in by_kernel]
            integer = _INTEGER[tensors[0].element_size()]
            bits = [tensor.detach().view(integer) for tensor in compress(tensors, others)]
            torch._foreach_mul_(bits, list(compress(masks, others)))


@torch.no_grad()
def take_dense(tensors: list[Tensor], masks: list[Tensor]) -> tuple[Sequence[Tensor], Tensor | None]:
    """Copies of the tensors, which are then masked in place as :func:`zero_inactive` does.

    Also returns whether all elements are finite, or None if that was not checked: on a GPU one Triton kernel does it
    all.
    """
    if len(kinds(tensors)) == 1 and runs_kernels(tensors[0].device) and all(_in_same_order(tensors, masks)):
        check_together(tensors[0].device, masks)
        from granet.kernels import masking as masking_kernels

        return masking_kernels.take_dense(tensors, masks)
    copies = torch._foreach_mul(tensors, 1)
    zero_inactive(zip(tensors, masks, strict=True))
    return copies, None


@torch.no_grad()
def all_finite(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Whether no element is NaN or infinite, as a bool tensor without dimensions on ``device``; no host wait."""
    finite = []
    for where, (group,) in _by_kind(tensors):
        if runs_kernels(where):
            from granet.kernels import masking as masking_kernels

            finite.append(masking_kernels.all_finite(group).to(device))
            continue
        zeros = [tensor.mul(0).sum() for tensor in group]  # 0 * inf and 0 * nan are nan
        finite.append((torch.stack(zeros) == 0).all().to(device))
    return finite[0] if len(finite) == 1 else torch.stack(finite).all()


def check_together(device: torch.device, masks: Sequence[Tensor]) -> None:
    """ValueError unless the masks are there too: a kernel would take their addresses for some of its own device.

    A model is moved whole, so the first mask tells; looking at hundreds would keep the host busy at every step.
    """
    if masks[0].device != device:
        raise ValueError(f"model: on {device}, its masks on {masks[0].device}; move it to its device before sparsify()")


def _is_capturing(device: torch.device) -> bool:
    """Every replay of a captured step would copy a kernel's table to the device again, from memory reused long ago."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _by_kind(*several: Sequence[Tensor]) -> Iterator[tuple[torch.device, list[Sequence[Tensor]]]]:
    """For each device and dtype in the first list: its tensors of that kind, and the matching ones of the others."""
    found = kinds(several[0]) if several else set()
    for kind in found:
        alike = [(tensor.device, tensor.dtype) == kind for tensor in several[0]] if len(found) > 1 else None
        yield kind[0], [tensors if alike is None else list(compress(tensors, alike)) for tensors in several]


def _in_same_order(tensors: Sequence[Tensor], masks: Sequence[Tensor]) -> list[bool]:
    """Which tensors have the same memory layout as their masks; a mask has no gaps."""
    if contiguous(tensors) and contiguous(masks):
        return [True] * len(tensors)
    return [
        (tensor.is_contiguous() and mask.is_contiguous()) or tensor.stride() == mask.stride()
        for tensor, mask in zip(tensors, masks, strict=True)
    ]
