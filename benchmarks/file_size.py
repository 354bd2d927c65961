"""How near packed files come to the least that they could take: VGG-19 and ResNet-20, random masks, ERK densities.

    python benchmarks/file_size.py [--models vgg19 resnet20] [--sparsities 0.9 0.95 0.98] [--repeats 3] [--json]

The bound of a sparse weight with n elements, m of them active, is 16 or 32 bits for each active one and
log2 (n! / m! (n - m)!) bits for the mask: that many masks have m of n active, and on average no code does better on
random ones. All other tensors count with their own bytes; names, shapes, counts and the checksum with none. The table
gives the whole file over this bound, the masks' codes over their part of it, and the dense file of safetensors over the
whole file. Seconds are the best of the repeats, and of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

import granet
from granet.models import create_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["vgg19", "resnet20"])
    parser.add_argument("--sparsities", type=float, nargs="+", default=[0.9, 0.95, 0.98])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    rows = [
        measure(name, sparsity, dtype, options.repeats)
        for name in options.models
        for dtype in (torch.float32, torch.bfloat16)
        for sparsity in options.sparsities
    ]
    if options.json:
        print(json.dumps({"torch": torch.__version__, "machine": platform.machine(), "rows": rows}))
        return
    print(f"{platform.machine()}, {torch.get_num_threads()} threads; torch {torch.__version__}")
    print("| model | values | sparsity | file / bound | masks / bound | dense / file | bytes | save, s | load, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {row['model']} | {row['values']} | {row['sparsity']:g} | {row['file_over_bound']:.4f} | "
            f"{row['masks_over_bound']:.4f} | {row['dense_over_file']:.1f} | {row['bytes']} | "
            f"{row['save_s']:.2f} | {row['load_s']:.2f} |"
        )


def measure(name: str, sparsity: float, dtype: torch.dtype, repeats: int) -> dict[str, str | float]:
    torch.manual_seed(0)
    model = create_model(name, num_classes=10)
    for tensor in model.state_dict().values():  # as after training: a fresh batch norm is half zeros, which pack well
        if tensor.is_floating_point() and tensor.ndim < 2:
            tensor.normal_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=sparsity))
    rounded = None if dtype == torch.float32 else dtype
    with tempfile.TemporaryDirectory() as folder:
        packed, dense = Path(folder, "packed.safetensors"), Path(folder, "dense.safetensors")
        save_s = seconds(lambda: granet.save(model, packed, sparsifier, dtype=rounded), repeats)
        load_s = seconds(lambda: granet.load(model, packed), repeats)
        safetensors.torch.save_model(model, str(dense))
        codes = safetensors.torch.load_file(packed)["masks"].nbytes
        size, dense_size = packed.stat().st_size, dense.stat().st_size
    masks = sum(map(mask_bits, sparsifier.masks.values())) / 8
    return {
        "model": name,
        "values": str(dtype).removeprefix("torch."),
        "sparsity": sparsity,
        "file_over_bound": size / (masks + sum(elements_bytes(model, sparsifier.masks, dtype))),
        "masks_over_bound": codes / masks,
        "dense_over_file": dense_size / size,
        "bytes": size,
        "save_s": save_s,
        "load_s": load_s,
    }


def mask_bits(mask: Tensor) -> float:
    """log2 of the number of masks with as many active weights."""
    size, active = mask.numel(), int(mask.sum())
    return (math.lgamma(size + 1) - math.lgamma(active + 1) - math.lgamma(size - active + 1)) / math.log(2)


def elements_bytes(model: nn.Module, masks: dict[str, Tensor], dtype: torch.dtype) -> list[int]:
    return [
        int(masks[name].sum()) * dtype.itemsize if name in masks else tensor.nbytes
        for name, tensor in model.state_dict().items()
    ]


def seconds(action: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
