"""Without a GPU, Triton's interpreter runs the kernels on the CPU; it must be chosen before they are first imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
