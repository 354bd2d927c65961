"""Whether granet's runtime answers as PyTorch does: the published networks on all test images.

    python benchmarks/sparse_accuracy.py --data-dir DIR [--names NAME ...] [--images 10000]

Each network is compiled, saved to a file in float32 and to one with weights of 16 bits, loaded from there into the
native engine, and run beside the model itself in eager PyTorch; the second file also computing in 16 bits, where the
processor does so. The table has for each their bytes, how many images are classified rightly, how many otherwise than
in PyTorch, the largest difference of an output as a share of the largest output, and the root mean square of all
differences over that of the outputs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor

import granet
from granet.cli.markdown import markdown_table
from granet.data import ImageSet, load
from granet.deploy.bench.compare import distances
from granet.training.batches import normaliser

BATCH = 50
WAYS = {
    "float32": (None, torch.float32),
    "float16": (torch.float16, torch.float32),
    "float16, computing so": (torch.float16, torch.float16),
}
"""What weights are stored as, and what is computed in."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where the image files are")
    parser.add_argument("--names", nargs="+", default=[entry.name for entry in granet.list_pretrained()])
    parser.add_argument("--images", type=int, default=10_000, help="the first so many, a multiple of 50")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [("network", "file", "bytes", "right", "right in PyTorch", "otherwise", "largest difference", "rms")]
    for entry in granet.list_pretrained():
        if entry.name in options.names:
            data = load(entry.data, data_dir=options.data_dir)
            assert isinstance(data, ImageSet)
            images, labels = data.test_images[: options.images], data.test_labels[: options.images]
            inputs = normaliser(data.mean, data.std, torch.device("cpu"))(images)
            found = compared(entry.name, inputs, labels, options.threads)
            print(*map(" ".join, found), sep="\n", flush=True)
            rows += found
    print(markdown_table(rows))


@torch.inference_mode()
def compared(name: str, inputs: Tensor, labels: Tensor, threads: int) -> list[tuple[str, ...]]:
    model = granet.load_pretrained(name)
    expected = torch.cat([model(batch) for batch in inputs.split(BATCH)])
    compiled = granet.deploy.compile(model, inputs[:BATCH], threads=threads, engine="native")
    right = int((expected.argmax(1) == labels).sum())
    rows = []
    for words, (stored, dtype) in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "network.granet")
            granet.deploy.save(compiled, file, dtype=stored)
            size = file.stat().st_size
            fast = granet.deploy.load(file, threads=threads, engine="native", dtype=dtype)
        if dtype is torch.float16 and "native float16" not in fast.engines.values():
            continue  # this processor does not compute in them
        found = torch.cat([fast(batch) for batch in inputs.split(BATCH)])
        far, rms = distances([found.numpy()], [expected.numpy()])
        counts = (int((found.argmax(1) == labels).sum()), right, int((found.argmax(1) != expected.argmax(1)).sum()))
        rows.append((name, words, f"{size:,}", *map(str, counts), f"{far:.1e}", f"{rms:.1e}"))
    return rows


if __name__ == "__main__":
    main()
