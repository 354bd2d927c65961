"""What cannot be compacted is said in one line, and what is left as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import granet
from smaller import Model, kill, shaken

X = torch.randn(2, 3, 8, 8)


def network() -> nn.Sequential:
    return shaken(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1)))


def refusal(model: object, example: object) -> str:
    with pytest.raises(ValueError) as raised:
        granet.compact(model, example)  # type: ignore[arg-type]
    (line,) = str(raised.value).splitlines()
    return line


def test_a_multiple_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"^multiple_of=0: must be a whole number, 1 or more$"):
        granet.compact(network(), X, multiple_of=0)


def test_no_model() -> None:
    assert refusal("resnet50", X) == "model=str: must be a torch.nn.Module"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers(value: float) -> None:
    model = network()
    model[2].weight.data[0, 0] = value
    assert refusal(model, X) == "model: '2.weight' has values that are not finite; must be numbers"


def test_a_model_without_values() -> None:
    assert "'0.weight' is on the meta device" in refusal(network().to("meta"), X)


def test_an_example_that_does_not_fit() -> None:
    line = refusal(network(), torch.randn(2, 5, 8, 8))
    assert line.startswith("model: Sequential cannot be exported: ") and "[2, 5, 8, 8]" in line


def test_a_model_that_cannot_be_exported_is_told_with_operator_and_place() -> None:
    def branches(self: Model, x: Tensor) -> Tensor:
        return self.a(x) if x.sum() > 0 else x

    line = refusal(Model(branches, a=nn.Conv2d(3, 3, 1)), X)
    assert "Model cannot be exported: at aten.item.default: " in line
    assert "(in branches, test_bad_input.py:" in line and "if x.sum() > 0" in line


def test_a_failed_export_says_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    refusal(Model(lambda self, x: x[: int(x.sum())]), X)
    assert capfd.readouterr() == ("", "")


def test_the_report_is_printed_or_given(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    kill(model, {"0.weight": [0, 1], "2.weight": [3]})
    model[0].bias.data[:2] = 0
    granet.compact(model, X)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "parameters 260 -> 196 (75.4%)"
    assert lines[1].startswith("FLOPs      ") and lines[2].startswith("latency    ")
    assert lines[3:] == ["stays      1 of the filters of 2.weight that do nothing: the model returns them"]
    reports: list[granet.Compaction] = []
    granet.compact(model, X, tell=reports.append)
    assert capsys.readouterr().out == ""
    (report,) = reports
    assert report.parameters == (260, 196)
    assert report.widths["0.weight"] == ((8, 3, 3, 3), (6, 3, 3, 3))
    assert report.staying[0].count == 1
    granet.compact(model, X, tell=None)
    assert capsys.readouterr().out == ""


def test_where_sizes_are_written_the_report_says_so() -> None:
    model = shaken(Model(lambda self, x: self.b(self.a(x).reshape(-1, 512)), a=nn.Conv2d(3, 8, 1), b=nn.Linear(512, 4)))
    kill(model, {"b.weight": range(64)}, dim=1)
    reports: list[granet.Compaction] = []
    granet.compact(model, X, tell=reports.append)
    assert reports[0].parameters[0] == reports[0].parameters[1]
    (stays,) = reports[0].staying
    assert (stays.weight, stays.count, stays.why) == ("a.weight", 1, "the model does not run with fewer")


def test_where_nothing_runs_with_less_it_says_why() -> None:
    """As with a number of groups that is written in the forward."""

    def grouped(self: Model, x: Tensor) -> Tensor:
        return self.b(nn.functional.conv2d(self.a(x), self.kernel, groups=8))

    model = Model(grouped, a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 2, 1))
    model.kernel = nn.Parameter(torch.randn(8, 1, 3, 3))
    shaken(model)
    kill(model, {"a.weight": [0, 1]})
    model.a.bias.data[:2] = 0  # type: ignore[union-attr, index]
    with pytest.warns(UserWarning, match="granet: compact takes nothing out of Model: RuntimeError: .*groups=8"):
        small = granet.compact(model, X, tell=None)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in small.state_dict().items())
