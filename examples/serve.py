"""Image classification over HTTP, from a `.granet` file: the network and its code are not needed, nor is a GPU.

    pip install starlette uvicorn pillow
    granet export cifar10-granet-0.98-from-half --to runtime --out vgg19.granet
    python examples/serve.py vgg19.granet --labels plane car bird cat deer dog frog horse ship truck
    curl --data-binary @picture.png http://127.0.0.1:8000/classify

Every request is one image, and runs on one thread while others run beside it: as many at once as there are processors,
and the rest wait their turn. `--mean` and `--std` are those the network was trained with, CIFAR-10's unless given.
"""

import argparse
import io
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from anyio import CapacityLimiter, to_thread
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from torch import Tensor

import granet

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
LARGEST = 10 << 20
"""The most bytes of a request."""
MOST_PIXELS = 50_000_000
"""A file of a few bytes can claim to be an image of any size."""
Image.MAX_IMAGE_PIXELS = None  # at which Pillow would warn, and refuse only twice as many


class Refused(Exception):
    """What is wrong with a request, and the status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Classifier:
    """From the bytes of an image file to the classes it may be of."""

    def __init__(self, path: Path, mean: list[float], std: list[float], labels: list[str]) -> None:
        self.network = granet.deploy.load(path, threads=1)
        plan = self.network.plans[0]
        (shape,), outputs = plan.inputs, self.network(torch.zeros(plan.inputs[0]))
        self.shape, self.classes = shape[1:], outputs.shape[-1]
        if shape[0] != 1 or self.shape[0] not in (1, 3) or outputs.shape != (1, self.classes):
            raise ValueError(f"{path}: takes {list(shape)} and gives {list(outputs.shape)}; must classify one image")
        if len(mean) != self.shape[0] or len(std) != self.shape[0] or min(std) <= 0:
            raise ValueError(f"mean={mean}, std={std}: must be {self.shape[0]} numbers each, std positive")
        if labels and len(labels) != self.classes:
            raise ValueError(f"labels={labels}: must be {self.classes}")
        self.labels = labels or [str(number) for number in range(self.classes)]
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))

    def image(self, file: bytes) -> Tensor:
        channels, height, width = self.shape
        try:
            with Image.open(io.BytesIO(file), formats=FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise Refused(413, f"{image.width} x {image.height} pixels: must be at most {MOST_PIXELS}")
                plain = image.convert("RGB" if channels == 3 else "L").resize((width, height))
        except (OSError, SyntaxError, ValueError) as error:  # all that Pillow raises
            raise Refused(415, f"no image that can be read, of {', '.join(FORMATS)}") from error
        pixels = torch.from_numpy(np.array(plain, dtype=np.float32)).view(height, width, channels).permute(2, 0, 1)
        return (pixels / 255 - self.mean) / self.std

    def __call__(self, file: bytes) -> dict[str, Any]:
        image = self.image(file)
        begin = time.perf_counter()
        shares = self.network(image[None])[0].softmax(0)
        seconds = time.perf_counter() - begin
        best = shares.topk(min(5, self.classes))
        top = [
            {"label": self.labels[number], "probability": share}
            for share, number in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        return {**top[0], "top": top, "network_ms": round(1000 * seconds, 3)}


def application(classifier: Classifier) -> Starlette:
    at_once = CapacityLimiter(os.cpu_count() or 1)

    async def classify(request: Request) -> JSONResponse:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                raise Refused(413, f"more than {LARGEST} bytes")
        return JSONResponse(await to_thread.run_sync(classifier, bytes(body), limiter=at_once))

    async def about(request: Request) -> JSONResponse:
        return JSONResponse({"image": classifier.shape, "labels": classifier.labels, **classifier.network.engines})

    async def refused(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, getattr(error, "status", 400))

    routes = [Route("/", about), Route("/classify", classify, methods=["POST"])]
    return Starlette(routes=routes, exception_handlers={Refused: refused, ClientDisconnect: refused})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--mean", type=float, nargs="+", default=[0.4914, 0.4822, 0.4465])
    parser.add_argument("--std", type=float, nargs="+", default=[0.2023, 0.1994, 0.2010])
    parser.add_argument("--labels", nargs="+", default=[])
    given = parser.parse_args()
    try:
        classifier = Classifier(given.file, given.mean, given.std, given.labels)
    except (ValueError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    torch.set_num_threads(1)
    uvicorn.run(application(classifier), host=given.host, port=given.port)


if __name__ == "__main__":
    main()
