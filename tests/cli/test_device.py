"""The device of a command, and how much of it: what is asked for, else what is usual there."""

import os

import pytest
import torch

from granet.cli.device import STREAMS, choose_device, choose_packed, choose_threads
from refusals import refused

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "embedded", "tried"),
    [(None, False, "cuda"), (None, True, "cpu"), ("cpu", False, "cpu"), ("cuda:1", True, "cuda:1")],
)
def test_a_gpu_is_for_images_that_do_not_come_with_the_package(
    name: str | None, embedded: bool, tried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[torch.device] = []

    def zeros(size: tuple[int, ...], device: torch.device) -> torch.Tensor:
        used.append(device)
        return torch.ones(size)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", zeros)
    assert [choose_device(name, embedded)] == used == [torch.device(tried)]


def test_without_a_gpu_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(None, embedded=False) == CPU


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, ImportError])  # by the kind of device and of torch
def test_a_device_that_cannot_be_used_is_refused(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("not compiled with it")

    monkeypatch.setattr(torch, "zeros", refuse)
    with refused("device", "xpu"):
        choose_device("xpu", embedded=False)


@pytest.mark.parametrize(
    ("asked", "embedded", "used"), [(3, False, [3]), (3, True, [3]), (None, True, [1]), (None, False, [])]
)
def test_one_thread_is_enough_for_the_embedded_images(
    asked: int | None, embedded: bool, used: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    choose_threads(asked, embedded)
    assert found == used


def test_an_option_comes_before_the_file_and_the_file_before_what_is_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert [choose_packed(asked, written, CPU) for asked, written in ((1, 4), (None, 4), (None, None))] == [1, 4, 7]
    assert choose_packed(None, None, torch.device("cuda")) == STREAMS
