"""The network that a command is given comes back as it was saved, with a batch that it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import granet
from granet.cli.networks import network
from refusals import refused
from runs import finished_run


def test_the_network_of_a_run(tmp_path: Path) -> None:
    folder, trained = finished_run(tmp_path)
    found = network(str(folder), batch=3)
    assert found.title == folder.name and found.example.shape == (3, 1, 8, 8)
    assert not found.model.training
    assert torch.equal(found.model(found.example), trained(found.example))


def test_a_published_network() -> None:
    name = "vgg19-cifar10-granet-0.98-from-half"
    found = network(name)
    assert found.title == name and not found.model.training
    assert torch.equal(found.model(found.example), granet.load_pretrained(name)(found.example))


def test_the_batch_is_the_same_each_time(tmp_path: Path) -> None:
    folder, _ = finished_run(tmp_path)
    assert torch.equal(network(str(folder)).example, network(str(folder)).example)


def test_what_is_neither(tmp_path: Path) -> None:
    with refused("network", str(tmp_path), "config.json"):
        network(str(tmp_path))
    with refused("network", "runs/no-such-run"):
        network("runs/no-such-run")
    with refused("name", "vgg19-cifar10", "vgg19-cifar10-granet-0.95-from-dense"):
        network("vgg19-cifar10")
    with refused("batch", 0):
        network("vgg19-cifar10-granet-0.98-from-half", batch=0)


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    folder, _ = finished_run(tmp_path)
    (folder / "model.safetensors").unlink()
    with refused("network", str(folder), "finished"):
        network(str(folder))


@pytest.mark.parametrize("images", [{}, {"shape": [1, 8], "classes": 10}, {"shape": [1, 8, "8"], "classes": 10}, 7])
def test_a_run_whose_images_are_not_known(images: object, tmp_path: Path) -> None:
    folder, _ = finished_run(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"images": images}))
    with refused(Path("config.json")):
        network(str(folder))
