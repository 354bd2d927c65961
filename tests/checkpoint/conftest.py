"""A small model with everything a file must hold, and hostile files with a valid checksum."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from granet import Sparsifier

STATM = Path("/proc/self/statm")
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
    """Rewrite a file, with a checksum that fits.

    `edit` changes the parsed header and table in place, `change` the table's text, `compress` makes the table's row of
    it, and `payload` is added after the last row. The header says how long the new row is, unless `edit` changed that.
    """

    def rewrite(
        path: Path,
        edit: Callable[[dict[str, Any], dict[str, Any]], object] = lambda _header, _table: None,
        *,
        change: Callable[[bytes], bytes] = lambda text: text,
        compress: Callable[[bytes], bytes] = lambda text: zlib.compress(text, 9),
        payload: bytes = b"",
    ) -> None:
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        begin, end = header["table"]["data_offsets"]
        assert start + end == len(content)  # the table comes last
        table = json.loads(zlib.decompress(content[start + begin :]))
        place = json.dumps(header["table"])
        edit(header, table)
        last = compress(change(json.dumps(table, separators=(",", ":")).encode()))
        if json.dumps(header.get("table")) == place:
            header["table"].update(shape=[len(last)], data_offsets=[begin, begin + len(last)])
        text = json.dumps(header, separators=(",", ":")).encode()
        rows = content[start : start + begin] + last + payload
        path.write_bytes(sign(len(text).to_bytes(8, "little") + text + rows))

    return rewrite


@pytest.fixture
def little_memory(tmp_path: Path, make: Any) -> Iterator[None]:
    """Nothing may take more than 256 MB; the files are of some kB and ask for much more."""
    model, sparsifier = make(0)
    granet.save(model, tmp_path / "first", sparsifier)
    granet.load(make(1)[0], tmp_path / "first")  # what torch takes when it is first used is no part of it
    resource = pytest.importorskip("resource")
    if not STATM.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(STATM.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def path(tmp_path: Path, make: Any) -> Path:
    """A real file of the model of seed 0."""
    model, sparsifier = make(0)
    granet.save(model, tmp_path / "some.file", sparsifier)
    return tmp_path / "some.file"


@pytest.fixture
def victim(make: Any) -> nn.Module:
    """A model that the file fits, with other weights."""
    model: nn.Module = make(1)[0]
    return model


@pytest.fixture
def refused(path: Path, victim: nn.Module, raw: Any) -> Callable[[str], None]:
    """Loading the file now gives that error, and the model does not change."""

    before = raw(victim.state_dict())

    def check(message: str) -> None:
        with pytest.raises(ValueError, match=rf"(?s)some\.file: .*{message}") as caught:
            granet.load(victim, path)
        assert len(str(caught.value)) < 500 + len(str(path))
        assert raw(victim.state_dict()) == before

    return check
