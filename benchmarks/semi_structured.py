"""2:4 sparsity on a GPU: one linear layer of several sizes, dense and in torch's semi-structured format.

    python benchmarks/semi_structured.py [--dtype float16]

Times are those that `granet.deploy.to_semi_structured` decides by: in captured CUDA graphs, the least of several
replays. Weights may stay in the cache of the GPU from call to call, for both alike.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from granet.deploy.semi_structured import captured
from timing import described

SIZES = ((768, 768), (3072, 768), (768, 3072), (4096, 4096), (11008, 4096))
"""Rows and columns of the weight."""
TOKENS = (64, 512, 2048, 8192, 32768)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    options = parser.parse_args()
    print(f"{described(torch.device('cuda'))}; torch {torch.__version__}; {options.dtype}\n")
    print("| weight | tokens | dense, us | 2:4, us | times as fast |\n| --- | --- | --- | --- | --- |")
    for rows, columns in SIZES:
        layer = nn.Linear(columns, rows, device="cuda", dtype=getattr(torch, options.dtype)).requires_grad_(False)
        layer.weight.view(-1, 4)[:, 2:] = 0
        for tokens in TOKENS:
            dense, sparse = captured(layer, tokens)
            print(
                f"| {rows} x {columns} | {tokens:,} | {dense:.1f} | {sparse:.1f} | {dense / sparse:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
