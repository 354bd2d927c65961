"""Files for other runtimes: they have the model's weights, bit for bit and by name, and give its outputs.

What every format has in common; ONNX and OpenVINO are tried where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import granet
from deployed import as_trained, assert_close
from granet.deploy import Written, to_onnx, to_openvino, to_torch
from granet.files import unfinished
from refusals import refused

IMAGES = torch.randn(2, 3, 16, 16)


@dataclass(frozen=True)
class Format:
    write: Callable[..., Written]
    suffix: str
    tensors: Callable[[Path], dict[str, Tensor]]
    run: Callable[[Path, Tensor], Tensor]


def torch_tensors(path: Path) -> dict[str, Tensor]:
    return torch.export.load(path).state_dict


def torch_run(path: Path, inputs: Tensor) -> Tensor:
    return torch.export.load(path).module()(inputs)


def onnx_tensors(path: Path) -> dict[str, Tensor]:
    import onnx

    found = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    return {name: torch.from_numpy(np.array(array)) for name, array in found.items()}


def onnx_run(path: Path, inputs: Tensor) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0])


def openvino_tensors(path: Path) -> dict[str, Tensor]:
    import openvino

    nodes = [node for node in openvino.Core().read_model(path).get_ops() if node.get_type_name() == "Constant"]
    return {node.get_friendly_name(): torch.from_numpy(np.array(node.data)) for node in nodes}


def openvino_run(path: Path, inputs: Tensor) -> Tensor:
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32"}  # with AMX it would be bfloat16
    return torch.from_numpy(np.array(openvino.compile_model(path, "CPU", settings)([inputs.numpy()])[0]))


def where_installed(*packages: str) -> list[pytest.MarkDecorator]:
    missing = [name for name in packages if find_spec(name) is None]
    return [pytest.mark.slow, pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)}")]


FORMATS = [
    pytest.param(Format(to_torch, ".pt2", torch_tensors, torch_run), id="torch"),
    pytest.param(
        Format(to_onnx, ".onnx", onnx_tensors, onnx_run),
        id="onnx",
        marks=where_installed("onnx", "onnxscript", "onnxruntime"),
    ),
    pytest.param(
        Format(to_openvino, ".xml", openvino_tensors, openvino_run),
        id="openvino",
        marks=where_installed("onnx", "onnxscript", "openvino"),
    ),
]
every_format = pytest.mark.parametrize("format", FORMATS)


def small() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return as_trained(nn.Sequential(*layers, nn.Linear(8, 5)))


class Vision(nn.Module):
    """A transformer for images; its positions are weights without zeros, and its classifier has the patches' weight."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(48, 48, bias=False)
        self.positions = nn.Parameter(torch.randn(16, 48))
        layer = nn.TransformerEncoderLayer(48, 4, 64, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(48, 48)
        self.head.weight = self.patches.weight

    def forward(self, images: Tensor) -> Tensor:
        patches = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 16, 48)
        return self.head(self.encoder(self.patches(patches) + self.positions).mean(1))


class Loss(nn.Module):
    """Several inputs, which are given by name, and several outputs, one of whole numbers; a parameter has no use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.unused = nn.Linear(6, 4), nn.Parameter(torch.zeros(3, 3))

    def forward(self, rows: Tensor, scale: Tensor, double: bool = False) -> dict[str, Tensor]:
        scores = self.linear(rows) * scale * (2 if double else 1)
        return {"scores": scores, "best": scores.argmax(1)}


class Fixed(nn.Module):
    """Has its batch size written in it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.reshape(2, 12))


@every_format
@pytest.mark.parametrize("make", [small, pytest.param(Vision, marks=pytest.mark.slow)])
@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_file_is_the_model(format: Format, make: Callable[[], nn.Module], batch: int, tmp_path: Path) -> None:
    model = as_trained(make())
    path = tmp_path / f"model{format.suffix}"
    written = format.write(model, IMAGES[:batch], path)
    found = format.tensors(path)
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        names = [other for other, tied in model.named_parameters(remove_duplicate=False) if tied is parameter]
        assert any(other in found and torch.equal(found[other], parameter) for other in names), name
    assert written.zeros == sum(int((parameter == 0).sum()) for parameter in parameters.values()) > 0
    assert written.weights == sum(parameter.numel() for parameter in parameters.values())
    assert written.path == path and written.any_batch and written.difference < 1e-5
    assert written.size == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert model.training
    model.eval()
    for size in (1, 2, 5):
        images = torch.randn(size, 3, 16, 16)
        assert_close(format.run(path, images), model(images))


@every_format
def test_inputs_by_name_and_several_outputs(format: Format, tmp_path: Path) -> None:
    inputs = {"scale": torch.rand(3, 1), "rows": torch.randn(3, 6), "double": True}
    written = format.write(Loss(), inputs, tmp_path / f"model{format.suffix}")
    assert written.any_batch and written.weights == 6 * 4 + 4


@every_format
def test_a_batch_size_that_is_written_in_the_model(format: Format, tmp_path: Path) -> None:
    written = format.write(Fixed(), torch.randn(2, 3, 4), tmp_path / f"model{format.suffix}")
    assert not written.any_batch
    assert str(written).endswith("the example's batch size alone")


@every_format
def test_a_batch_size_that_is_asked_for(format: Format, tmp_path: Path) -> None:
    path = tmp_path / f"model{format.suffix}"
    assert not format.write(small(), IMAGES, path, any_batch=False).any_batch
    with pytest.raises(Exception, match=r"(?i)shape|dimension|guard"):  # each runtime has its own
        format.run(path, torch.randn(3, 3, 16, 16))


@every_format
def test_what_is_there_is_replaced(format: Format, tmp_path: Path) -> None:
    path = tmp_path / f"model{format.suffix}"
    format.write(small(), IMAGES, path, any_batch=False)
    format.write(model := small(), IMAGES, path, any_batch=False)
    assert torch.equal(format.tensors(path)["5.bias"], model[5].bias)
    assert not unfinished(tmp_path)


@every_format
def test_half_precision(format: Format, tmp_path: Path) -> None:
    path = tmp_path / f"model{format.suffix}"
    written = format.write(model := nn.Linear(16, 8).half(), torch.randn(2, 16).half(), path)
    assert format.tensors(path)["weight"].dtype == torch.float16 and written.weights == 8 * 16 + 8
    assert torch.equal(format.tensors(path)["weight"], model.weight)


# What is refused, by every format alike.


def pruned_by_torch() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8))
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


def in_training() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.VD(), total_steps=10)
    return model


def not_a_number() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8))
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    return model


class Branching(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else x


class Eigenvalues(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return torch.linalg.eigvals(y).real


ROWS = torch.randn(8, 8)


@every_format
@pytest.mark.parametrize(
    ("make", "tells"),
    [
        (pruned_by_torch, "'0.weight_orig' is computed anew in every call"),
        (in_training, "'0.weight' is computed anew in every call"),
        (not_a_number, "'0.weight' has values that are not finite"),
        (lambda: Branching(8, 8), "if x.sum() > 0"),
        (lambda: nn.Linear(9, 8), "fails on example_input"),
        (lambda: nn.Linear(8, 8, device="meta"), "is on meta"),
    ],
)
def test_models_that_are_refused(format: Format, make: Callable[[], nn.Module], tells: str, tmp_path: Path) -> None:
    (path := tmp_path / f"model{format.suffix}").write_text("older")
    with pytest.raises(ValueError, match=r"^model: ") as error:
        format.write(make(), ROWS, path)
    assert tells in str(error.value) and "\n" not in str(error.value)
    assert path.read_text() == "older" and list(tmp_path.iterdir()) == [path]


@every_format
def test_what_is_no_model(format: Format, tmp_path: Path) -> None:
    with refused("model", "str"):
        format.write("model.pt", ROWS, tmp_path / f"model{format.suffix}")


@every_format
def test_paths_that_are_refused(format: Format, tmp_path: Path) -> None:
    (tmp_path / f"folder{format.suffix}").mkdir()
    for path in (tmp_path / "model.bin", tmp_path / f"no/model{format.suffix}", tmp_path / f"folder{format.suffix}"):
        with refused("path", str(path), unchanged=(tmp_path,)):
            format.write(nn.Linear(8, 8), ROWS, path)


@pytest.mark.parametrize("format", FORMATS[1:])
def test_an_operator_that_onnx_has_not(format: Format, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"linalg_eig.* \(in forward, test_exports.py:\d+: .*eigvals") as error:
        format.write(Eigenvalues(8, 8), ROWS, tmp_path / f"model{format.suffix}")
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


class Determinants(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.det(super().forward(x).reshape(-1, 8, 8))


@pytest.mark.parametrize("format", FORMATS[2:])
def test_an_operator_that_openvino_has_not(format: Format, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^model: OpenVINO cannot take it: .*Det-\d+$"):
        format.write(Determinants(8, 8), ROWS, tmp_path / "model.xml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", FORMATS[1:])
def test_more_weights_than_a_file_can_have(format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.deploy.onnx_file.MOST", 100)
    with pytest.raises(ValueError, match=r"^model: has 288 bytes of weights; an ONNX file must have at most 100$"):
        format.write(nn.Linear(8, 8), ROWS, tmp_path / f"model{format.suffix}")


@pytest.mark.parametrize("format", FORMATS[1:])
def test_weights_that_runtimes_do_not_take(format: Format, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^model: 'weight' is of bfloat16; must be of float32 or float16"):
        format.write(nn.Linear(8, 8).bfloat16(), ROWS.bfloat16(), tmp_path / f"model{format.suffix}")


@pytest.mark.parametrize(("write", "suffix"), [(to_onnx, ".onnx"), (to_openvino, ".xml")])
def test_packages_that_are_missing_are_named(
    write: Callable[..., Written], suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> Any:
        return None if name in ("onnx", "onnxscript") else object()

    monkeypatch.setattr("granet.deploy.written.find_spec", find)
    path = tmp_path / f"model{suffix}"
    with refused("path", str(path), "needs onnx and onnxscript: pip install 'granet[deploy]'"):
        write(small(), IMAGES, path)


def test_a_file_that_would_differ_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = torch.export.save

    def save_another(program: torch.export.ExportedProgram, path: Path) -> None:
        changed = program.state_dict[name].detach() + add
        program.state_dict[name] = nn.Parameter(changed) if name == "0.weight" else changed
        save(program, path)

    monkeypatch.setattr("torch.export.save", save_another)
    name, add = "0.weight", 1e-3
    with pytest.raises(ValueError, match=r"^model: '0.weight' would not be the same in the file"):
        to_torch(small(), IMAGES, tmp_path / "model.pt2")
    name, add = "1.running_mean", 1.0
    with pytest.raises(ValueError, match=r"^model: the file must give the model's outputs, and would not"):
        to_torch(small(), IMAGES, tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


# The runtime's own file, by a call like the others.


def test_a_file_of_the_runtime_in_one_call(tmp_path: Path) -> None:
    path = tmp_path / "model.granet"
    written = granet.deploy.to_runtime(model := small(), IMAGES, path)
    fast = granet.deploy.load(path, engine="torch")
    assert_close(fast(IMAGES), model.eval()(IMAGES))
    (plan,) = fast.plans
    assert written.weights == sum(array.size for array in plan.arrays) and not written.any_batch
    assert written.zeros == sum(int((array.dense() == 0).sum()) for array in plan.arrays) > 0
    assert written.size == path.stat().st_size and written.difference < 1e-5
    rounded = granet.deploy.to_runtime(model, IMAGES, path, dtype=torch.float16)
    assert written.difference < rounded.difference < 2e-2


def test_what_the_runtime_has_no_file_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"parts of it run in PyTorch \(.*sigmoid"):
        granet.deploy.to_runtime(nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()), ROWS, tmp_path / "model.granet")
    with refused("path", str(tmp_path / "model.onnx")):
        granet.deploy.to_runtime(nn.Linear(8, 8), ROWS, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_compiled_model_has_its_plain_names(tmp_path: Path) -> None:
    to_torch(torch.compile(model := nn.Linear(8, 8)), ROWS, tmp_path / "model.pt2")
    assert torch.equal(torch_tensors(tmp_path / "model.pt2")["weight"], model.weight)


@pytest.mark.parametrize("format", FORMATS[1:2])
def test_onnxruntime_has_nothing_to_say(format: Format, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As it would of operators that it can neither fold nor run."""
    format.write(Vision(), IMAGES, tmp_path / "model.onnx")
    onnx_run(tmp_path / "model.onnx", IMAGES)
    assert capfd.readouterr() == ("", "")
