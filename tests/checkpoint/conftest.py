"""A small model with everything a file must hold, and files forged with a valid checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from granet import Sparsifier

Raw = tuple[str, tuple[int, ...], bytes]


class Tied(nn.Module):
    """Two names of one weight, a convolution in channels-last memory, a batch norm with its counter."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(24, 40)
        self.conv = nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm1d(40)
        self.decoder = nn.Linear(24, 40, bias=False)
        self.decoder.weight = self.encoder.weight
        self.register_buffer("table", torch.linspace(-1, 1, 7, dtype=torch.float16))
        self.register_buffer("nothing", torch.empty(0, 3))


@pytest.fixture
def make() -> Callable[..., tuple[Tied, Sparsifier]]:
    """A sparse model of that seed: 90 % zeros, and nothing else that is zero by chance."""

    def build(seed: int = 0) -> tuple[Tied, Sparsifier]:
        torch.manual_seed(seed)
        model = Tied()
        for tensor in model.state_dict().values():
            if tensor.ndim == 1:
                tensor.normal_()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, granet.sparsify(model, optimizer, granet.Static(sparsity=0.9), seed=seed)

    return build


@pytest.fixture
def raw() -> Callable[[dict[str, Tensor]], dict[str, Raw]]:
    """Dtype, shape and bytes of every tensor, in logical order."""

    def bits(state: dict[str, Tensor]) -> dict[str, Raw]:
        return {
            name: (str(t.dtype), tuple(t.shape), t.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            for name, t in state.items()
        }

    return bits


@pytest.fixture
def sign() -> Callable[[bytes], bytes]:
    """The content of a file with the checksum that belongs to it, if it has the place for one."""

    def signed(content: bytes) -> bytes:
        if b'"sha256":"' not in content:
            return content
        place = content.index(b'"sha256":"') + len(b'"sha256":"')
        zeroed = content[:place] + b"0" * 64 + content[place + 64 :]
        return content[:place] + hashlib.sha256(zeroed).hexdigest().encode() + content[place + 64 :]

    return signed


@pytest.fixture
def forge(sign: Callable[[bytes], bytes]) -> Callable[..., None]:
    """Rewrite a file: `edit(header, layout)` changes its parsed JSON in place; the checksum is made to fit."""

    def rewrite(path: Path, edit: Callable[[dict[str, Any], dict[str, Any]], object], payload: bytes = b"") -> None:
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        layout = json.loads(header["__metadata__"]["granet"])
        edit(header, layout)
        if isinstance(header.get("__metadata__"), dict):
            header["__metadata__"]["granet"] = json.dumps(layout)
        text = json.dumps(header, separators=(",", ":")).encode()
        path.write_bytes(sign(len(text).to_bytes(8, "little") + text + content[start:] + payload))

    return rewrite
