"""What is said when the device has not enough memory, and what a CPU run leaves alone."""

import pytest
import torch

from granet.training.device import enough_memory, kernels_tried, prepare_device
from refusals import refused

CPU = torch.device("cpu")


def test_out_of_memory_is_one_clear_line() -> None:
    message = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139 GiB\nof which ..."
    with refused("device", "cpu", "2.50 GiB on top", "batch_size"), enough_memory(CPU):
        raise torch.OutOfMemoryError(message)


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), enough_memory(CPU):
        raise KeyError("x")


def test_a_cpu_run_changes_no_setting_of_the_process() -> None:
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    prepare_device(CPU, deterministic=True)
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark) == before


@pytest.mark.parametrize(("name", "made_current"), [("cuda:1", ["cuda:1"]), ("cuda", [])])
def test_the_gpu_of_a_run_is_the_current_one(
    name: str, made_current: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    current: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.append(str(device)))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    prepare_device(torch.device(name), deterministic=False)
    assert current == made_current


@pytest.mark.parametrize("deterministic", [False, True])
def test_cudnn_tries_kernels_where_asked_alone(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", deterministic)
    with pytest.raises(KeyError), kernels_tried():
        assert torch.backends.cudnn.benchmark is not deterministic
        raise KeyError("x")
    assert not torch.backends.cudnn.benchmark


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU to run short of memory")
def test_a_gpu_that_is_really_too_small() -> None:
    with pytest.raises(ValueError, match=r"not enough memory; .* GiB are free"), enough_memory(torch.device("cuda")):
        torch.empty(1 << 50, device="cuda")
