"""The ways to run a network that are compared: what each needs in a folder, and how it is run from there."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from granet.deploy.compaction import compact
from granet.deploy.compiling import compile
from granet.deploy.onnx_file import EXPORTER, to_onnx
from granet.deploy.saved import load, save
from granet.deploy.unsupported import Unsupported

Inputs = tuple[Tensor, ...]


class Ready(NamedTuple):
    """A network that is loaded and waits for its next call."""

    call: Callable[[], Any]
    """Computes the outputs for the inputs that it was loaded with: a tensor, an array, or a sequence of such."""
    precision: str = "float32"


@dataclass(frozen=True)
class Candidate:
    """A way to run a network. Both functions raise, where it cannot be had, an error that says why."""

    write: Callable[[nn.Module, Inputs, int, Path], None]
    """In the process that has the network; the number is that of threads."""
    read: Callable[[Path, Inputs, int], Ready]
    """In a process of its own."""
    needs: tuple[str, ...] = ()
    """Packages besides granet and torch, by the names that they are imported by."""
    dense: bool = True
    """Whether it takes the network as it is and gains nothing from zeros."""


def _write_module(model: nn.Module, inputs: Inputs, threads: int, folder: Path) -> None:
    try:
        torch.save(model, folder / "model.pt")
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Unsupported(f"the model cannot be handed to another process: {error}") from error


def _read_module(folder: Path) -> nn.Module:
    module: nn.Module = torch.load(folder / "model.pt", weights_only=False)  # written a moment ago by this program
    return module.eval()


def _without_gradients(module: Callable[..., Any], inputs: Inputs) -> Ready:
    def call() -> Any:
        with torch.no_grad():
            return module(*inputs)

    return Ready(call)


def _eager(folder: Path, inputs: Inputs, threads: int) -> Ready:
    return _without_gradients(_read_module(folder), inputs)


def _compiled(folder: Path, inputs: Inputs, threads: int) -> Ready:
    from torch._inductor import config

    config.freezing = True  # weights become constants, laid out as kernels want them
    ready = _without_gradients(torch.compile(_read_module(folder)), inputs)
    ready.call()
    return ready


def _write_compacted(model: nn.Module, inputs: Inputs, threads: int, folder: Path) -> None:
    small = compact(model, inputs, tell=None)
    if _weights(small) == _weights(model):
        raise Unsupported("no channel can be taken out")
    _write_module(small, inputs, threads, folder)


def _weights(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _write_plan(
    model: nn.Module, inputs: Inputs, threads: int, folder: Path, dtype: torch.dtype = torch.float32
) -> None:
    """A file, or the model where that cannot be; either way it is measured now how each layer runs fastest."""
    compiled = compile(model, inputs, threads=threads, engine="native", dtype=dtype)
    if dtype is torch.float16 and "native float16" not in compiled.engines.values():
        raise Unsupported("this processor does not compute in 16 bits, or the network is not safe in them")
    if compiled.whole is None:
        _write_module(model, inputs, threads, folder)
    else:
        save(compiled, folder / "network.granet")


def _native(folder: Path, inputs: Inputs, threads: int, dtype: torch.dtype = torch.float32) -> Ready:
    if (file := folder / "network.granet").is_file():
        fast = load(file, threads=threads, engine="native", memory=1 << 62, dtype=dtype)
    else:
        fast = compile(_read_module(folder), inputs, threads=threads, engine="native", dtype=dtype)
    return Ready(lambda: fast(*inputs), str(dtype).removeprefix("torch."))


def _write_onnx(model: nn.Module, inputs: Inputs, threads: int, folder: Path) -> None:
    to_onnx(model, inputs, folder / "network.onnx", any_batch=False)


def _onnxruntime(folder: Path, inputs: Inputs, threads: int) -> Ready:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.force_spinning_stop", "1")  # or it spins on, while others have their turn
    session = onnxruntime.InferenceSession(str(folder / "network.onnx"), options, providers=["CPUExecutionProvider"])
    given = {each.name: tensor.numpy() for each, tensor in zip(session.get_inputs(), inputs, strict=True)}
    return Ready(lambda: session.run(None, given))


def _write_openvino(model: nn.Module, inputs: Inputs, threads: int, folder: Path) -> None:
    import openvino

    converted = openvino.convert_model(model, example_input=inputs)
    converted.reshape({number: list(tensor.shape) for number, tensor in enumerate(inputs)})
    openvino.save_model(converted, folder / "network.xml", compress_to_fp16=False)


def _openvino(folder: Path, inputs: Inputs, threads: int, hint: Mapping[str, str]) -> Ready:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, **hint}
    compiled = openvino.Core().compile_model(folder / "network.xml", "CPU", settings)
    request = compiled.create_infer_request()
    given = {number: openvino.Tensor(tensor.numpy()) for number, tensor in enumerate(inputs)}
    precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()

    def call() -> list[Any]:
        results = request.infer(given)
        return [results[number] for number in range(len(results))]

    return Ready(call, {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}.get(precision, precision))


def _openvino_float32(folder: Path, inputs: Inputs, threads: int) -> Ready:
    return _openvino(folder, inputs, threads, {"INFERENCE_PRECISION_HINT": "f32"})


def _openvino_own(folder: Path, inputs: Inputs, threads: int) -> Ready:
    ready = _openvino(folder, inputs, threads, {})
    if ready.precision == "float32":
        raise Unsupported("the precision that it chooses here is float32")
    return ready


GRANET = "granet"
GRANET_HALVES = f"{GRANET}, 16 bit"
CANDIDATES: Mapping[str, Candidate] = {
    GRANET: Candidate(_write_plan, _native, dense=False),
    GRANET_HALVES: Candidate(
        partial(_write_plan, dtype=torch.float16), partial(_native, dtype=torch.float16), dense=False
    ),
    "granet.compact": Candidate(_write_compacted, _eager, dense=False),
    "PyTorch": Candidate(_write_module, _eager),
    "torch.compile": Candidate(_write_module, _compiled),
    "ONNX Runtime": Candidate(_write_onnx, _onnxruntime, needs=("onnxruntime", *EXPORTER)),
    "OpenVINO": Candidate(_write_openvino, _openvino_float32, needs=("openvino",)),
    "OpenVINO, 16 bit": Candidate(_write_openvino, _openvino_own, needs=("openvino",)),
}
"""By the names that tables give them."""
