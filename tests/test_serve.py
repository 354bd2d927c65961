"""The serving example as its clients meet it: over HTTP, with images, with rubbish, and many at once."""

import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import granet

Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[1] / "examples" / "serve.py"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
LABELS = ("plane", "car", "bird", "cat")


def start(*arguments: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join(filter(None, (str(Path(granet.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, str(SOURCE), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,  # a line for each request
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, len(LABELS))),
    ).eval()
    granet.prune(model, granet.OneShot(sparsity=0.8))
    images = torch.stack([pixels(picture(seed)) for seed in range(100)])
    with torch.no_grad():
        model[-1].weight *= 50  # sure of itself,
        model[-1].bias -= model(images).mean(0)  # and of other classes for other images
    return model


@pytest.fixture(scope="module")
def file(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "net.granet"
    granet.deploy.save(granet.deploy.compile(model, torch.randn(1, 3, 12, 10), threads=1), path)
    return path


@pytest.fixture(scope="module")
def port(file: Path) -> Iterator[int]:
    with start(file, "--port", 0, "--labels", *LABELS) as process:
        too_long = threading.Timer(300, process.kill)
        too_long.start()
        try:
            assert process.stderr is not None
            address = next(found for line in process.stderr if (found := re.search(r"http://[\d.]+:(\d+)", line)))
            said: list[str] = []
            reader = threading.Thread(target=lambda: said.extend(process.stderr or ()))
            reader.start()
            yield int(address[1])
            process.send_signal(signal.SIGINT)
            reader.join()
            assert "Finished server process" in "".join(said) and "Traceback" not in "".join(said)
        finally:
            too_long.cancel()
            process.kill()


def ask(port: int, body: bytes, path: str = "/classify", method: str = "POST") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.headers["content-type"] == "application/json" else text


def picture(seed: int, kind: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (10, 12)) -> bytes:
    channels = len(Image.new(mode, (1, 1)).getbands())
    random = np.random.default_rng(seed)
    shade = random.integers(0, 200, channels)
    pixels = (shade + random.integers(0, 56, (size[1], size[0], channels))).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels.squeeze(), mode).save(stream, kind)
    return stream.getvalue()


def pixels(file: bytes) -> torch.Tensor:
    """What a network reads of an image of its own size."""
    plain = torch.from_numpy(np.array(Image.open(io.BytesIO(file)).convert("RGB"))).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (plain - mean) / std


@torch.no_grad()
def expected(model: nn.Module, file: bytes) -> torch.Tensor:
    return model(pixels(file)[None])[0].softmax(0)


@pytest.mark.parametrize(
    ("kind", "mode"), [("PNG", "RGB"), ("JPEG", "RGB"), ("PNG", "L"), ("PNG", "RGBA"), ("GIF", "L")]
)
def test_it_answers_what_the_model_does(port: int, model: nn.Module, kind: str, mode: str) -> None:
    file = picture(1, kind, mode)
    status, answer = ask(port, file)
    shares = expected(model, file)
    assert status == 200 and answer["label"] == LABELS[int(shares.argmax())]
    assert answer["top"][0] == {"label": answer["label"], "probability": answer["probability"]}
    told = {one["label"]: one["probability"] for one in answer["top"]}
    assert [told[label] for label in LABELS] == pytest.approx(shares.tolist(), abs=1e-4)


def test_an_image_of_another_size_is_scaled(port: int) -> None:
    assert ask(port, picture(2, size=(300, 200)))[0] == 200


def test_what_it_serves(port: int) -> None:
    status, answer = ask(port, b"", "/", "GET")
    assert status == 200 and answer["image"] == [3, 12, 10] and answer["labels"] == list(LABELS)


def bomb() -> bytes:
    """A few kilobytes that are a hundred million pixels."""
    stream = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 415, "no image"),
        (b"rubbish" * 100, 415, "no image"),
        (picture(3)[:200], 415, "no image"),
        (picture(3, "TIFF"), 415, "no image that can be read, of PNG"),
        (bomb(), 413, "10000 x 10000 pixels: must be at most"),
        (bytes(11 << 20), 413, "more than 10485760 bytes"),
    ],
    ids=["nothing", "rubbish", "cut off", "another format", "bomb", "too long"],
)
def test_rubbish_is_refused(port: int, body: bytes, status: int, says: str) -> None:
    given, answer = ask(port, body)
    assert given == status and says in answer["error"] and "\n" not in answer["error"]


def test_other_paths_and_methods(port: int) -> None:
    assert ask(port, b"", "/nothing", "GET")[0] == 404
    assert ask(port, b"", "/classify", "GET")[0] == 405


def test_one_that_hangs_up_harms_no_other(port: int) -> None:
    for sent in (
        b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nabc",
        b"\x16\x03\x01 no http\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(sent)
    assert ask(port, picture(4))[0] == 200


def test_many_at_once_get_each_their_own_answer(port: int, model: nn.Module) -> None:
    files = [picture(seed) if seed % 5 else b"rubbish" for seed in range(200)]
    with ThreadPoolExecutor(16) as several:
        answers = list(several.map(lambda file: ask(port, file), files))
    seen = set()
    for file, (status, answer) in zip(files, answers, strict=True):
        assert status == (415 if file == b"rubbish" else 200)
        if status == 200:
            shares = expected(model, file)
            assert answer["probability"] == pytest.approx(float(shares.max()), abs=1e-4)
            assert answer["label"] == LABELS[int(shares.argmax())]
            seen.add(answer["label"])
    assert len(seen) > 1


@pytest.mark.parametrize("given", ["damaged", "labels", "mean", "batch"])
def test_what_cannot_be_served_is_said_before_it_starts(given: str, file: Path, tmp_path: Path) -> None:
    arguments: tuple[object, ...] = (file, "--labels", "one", "two")
    if given == "damaged":
        (tmp_path / "net.granet").write_bytes(file.read_bytes()[:-5])
        arguments = (tmp_path / "net.granet",)
    elif given == "mean":
        arguments = (file, "--mean", 0.5)
    elif given == "batch":
        pair = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
        granet.deploy.save(granet.deploy.compile(pair, torch.randn(2, 3, 4, 4), threads=1), tmp_path / "net.granet")
        arguments = (tmp_path / "net.granet",)
    process = start(*arguments)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2 and said.startswith("error: ") and said.count("\n") == 1
