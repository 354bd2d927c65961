"""`granet export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from granet.files import writing_to

if TYPE_CHECKING:
    from rich.console import Console

    from granet.cli.networks import Network
    from granet.deploy import Written

_TO = (
    "`compact`: without the channels that do nothing, as a program of torch.export; `runtime`: for granet's runtime, "
    "in which zeros cost nothing; `onnx`; `openvino`; `torch`: a program of torch.export, as it is; `2:4`: no file, "
    "but a measurement of which layers are faster in 2:4 on this GPU."
)
_OUT = "The file. By default it has the network's name, in the current folder, and one that is there is not replaced."
_BATCH = (
    "Images at once. By default files take any number, but for those of `runtime`, which take one; `2:4` measures one."
)
_DTYPE = "What weights are rounded to, for `runtime` (by default nothing is) and `2:4` (bfloat16 by default)."
_SUFFIX = {"compact": ".pt2", "runtime": ".granet", "onnx": ".onnx", "openvino": ".xml", "torch": ".pt2"}


@dataclass(frozen=True)
class Export:
    """Write a trained network to a file for other runtimes, once that gave what PyTorch gives.

    ONNX and OpenVINO need pip install 'granet[deploy]', and 2:4 an NVIDIA GPU.
    """

    network: Annotated[str, Positional, arg(metavar="RUN|NAME")]
    """The folder of a run, or the name of a published network (`granet pretrained` lists them)."""
    to: Annotated[Literal["compact", "runtime", "onnx", "openvino", "torch", "2:4"], arg(help=_TO)]
    out: Annotated[Path | None, arg(help=_OUT)] = None
    batch: Annotated[int | None, arg(help=_BATCH)] = None
    dtype: Annotated[Literal["float32", "float16", "bfloat16"] | None, arg(help=_DTYPE)] = None

    def run(self, console: Console) -> None:
        """Write and say what; or measure."""
        from granet.cli.networks import network

        if self.dtype is not None and self.to not in ("runtime", "2:4"):
            raise ValueError(f"dtype={self.dtype!r}: must be left out, --to {self.to} writes weights as they are")
        if self.out is not None:
            self._check_out(self.out)
        found = network(self.network, 1 if self.batch is None else self.batch)
        if self.to == "2:4":
            self._measure(found, console)
            return
        path = self.out or Path(f"{found.title}{'-compact' if self.to == 'compact' else ''}{_SUFFIX[self.to]}")
        if self.out is None and path.exists():
            raise ValueError(f"out={str(path)!r}: is there already; must be named, as --out {path}, to be replaced")
        with writing_to("out", path, "must be a file that can be written"):
            written = self._write(found, path, console)
        _say(console, f"wrote {written}")

    def _check_out(self, out: Path) -> None:
        from granet.deploy.written import check_path

        if self.to == "2:4":
            raise ValueError(f"out={str(out)!r}: must be left out, torch's 2:4 is for the GPU that it is made on")
        check_path("out", out, _SUFFIX[self.to])

    def _write(self, found: Network, path: Path, console: Console) -> Written:
        import torch

        from granet import deploy
        from granet.deploy.compaction import compact

        model, example, any_batch = found.model, found.example, self.batch is None
        match self.to:
            case "runtime":
                rounded = None if self.dtype in (None, "float32") else getattr(torch, str(self.dtype))
                return deploy.to_runtime(model, example, path, dtype=rounded)
            case "onnx":
                return deploy.to_onnx(model, example, path, any_batch=any_batch)
            case "openvino":
                return deploy.to_openvino(model, example, path, any_batch=any_batch)
            case "compact":
                model = compact(model, example, tell=lambda told: _say(console, told))
        return deploy.to_torch(model, example, path, any_batch=any_batch)

    def _measure(self, found: Network, console: Console) -> None:
        import torch

        from granet.deploy import to_semi_structured

        dtype = getattr(torch, self.dtype or "bfloat16")
        to_semi_structured(
            found.model,
            found.example,
            dtype=dtype,
            tell=lambda told: _say(console, told),
        )


def _say(console: Console, told: object) -> None:
    console.print(str(told), soft_wrap=True, highlight=False, markup=False)
