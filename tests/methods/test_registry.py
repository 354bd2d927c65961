"""Methods by name, and methods as values."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

import granet
from granet import create_method, list_methods
from granet.methods import method_name

HIDDEN = {"dpf", "gmp-original", "str", "vd"}
MOVING = {"deep-r", "dsr", "rigl", "rigl-itop", "set", "snfs", "snfs-fixed"}
BEFORE = {"grasp", "magnitude-init", "snip", "synflow"}
AFTER = {"lrr", "lth", "one-shot", "sis"}
PROBES = {"prune-once", "prune-regrow"}
NAMES = sorted({"gmp", "granet", "gs", "static"} | HIDDEN | MOVING | BEFORE | AFTER | PROBES)


def test_every_method_is_listed_with_what_it_can_do() -> None:
    infos = {info.name: info for info in list_methods()}
    assert sorted(infos) == NAMES
    capable = {
        flag: {name for name, info in infos.items() if getattr(info, flag)}
        for flag in (
            "dense_to_sparse",
            "sparse_to_sparse",
            "regrows",
            "changes_masks",
            "before_training",
            "needs_gradient",
            "needs_batches",
            "needs_trained",
            "hidden",
            "has_target",
        )
    }
    assert capable == {
        "dense_to_sparse": {"granet", "gmp", "gs"} | HIDDEN,
        "sparse_to_sparse": {"granet", "static"} | MOVING,
        "regrows": {"granet", "prune-regrow"} | MOVING | HIDDEN,
        "changes_masks": set(NAMES) - {"static", "prune-once"} - BEFORE - AFTER,
        "before_training": BEFORE | PROBES | {"static"},
        "needs_gradient": {"granet", "prune-regrow", "rigl", "rigl-itop", "snfs", "snfs-fixed"},
        "needs_batches": {"grasp", "sis", "snip", "synflow"},
        "needs_trained": AFTER,
        "hidden": HIDDEN,
        "has_target": set(NAMES) - {"str", "vd", "sis"} - PROBES,
    }
    for info in infos.values():
        assert info.summary
        assert "\n" not in info.summary
        assert info.paper
        assert info.score
        assert bool(info.growth) == info.regrows
        assert bool(info.knob) != info.has_target
        assert info.when in {
            "before training", "during, from dense", "during, from sparse", "during, from dense or sparse",
            "after training",
        }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_method_by_name_is_the_one_by_class(name: str) -> None:
    method = create_method(name, sparsity=0.8)
    cls = {info.name: info.cls for info in list_methods()}[name]
    assert method == cls(sparsity=0.8)
    assert method_name(method) == name
    assert getattr(granet, cls.__name__) is cls


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_a_value(name: str) -> None:
    method, twin, other = (create_method(name, sparsity=s) for s in (0.8, 0.8, 0.9))
    assert method == twin
    assert hash(method) == hash(twin)
    assert method != other
    assert eval(repr(method), vars(granet)) == method
    assert pickle.loads(pickle.dumps(method)) == method
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.sparsity = 0.5  # type: ignore[misc]


def test_fields_are_passed_on() -> None:
    method = create_method("granet", sparsity=0.9, initial_sparsity=0.5, every="1ep", end="80ep")
    assert method == granet.GraNet(0.9, initial_sparsity=0.5, every="1ep", end="80ep")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"method='granett': must be one of .*did you mean 'granet'"):
        create_method("granett", sparsity=0.9)
    with pytest.raises(ValueError, match=r"method='': must be one of"):
        create_method("", sparsity=0.9)


@pytest.mark.parametrize("name", [None, 3])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match=f"method={name}: must be one of"):
        create_method(name, sparsity=0.9)  # type: ignore[arg-type]


def test_an_unknown_field_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"initial_sparsity=0\.5: rigl has no such field; it has sparsity, "):
        create_method("rigl", sparsity=0.9, initial_sparsity=0.5)


def test_a_missing_sparsity_is_named() -> None:
    with pytest.raises(ValueError, match="sparsity: granet needs it"):
        create_method("granet")


@pytest.mark.parametrize("name", ["str", "vd"])
def test_a_sparsity_with_a_default_need_not_be_given(name: str) -> None:
    assert create_method(name).sparsity == 0


def test_a_users_own_method_goes_by_its_class_name() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(granet.Method):
        """Dense."""

        def begin(self, net: object) -> None:
            pass

    assert method_name(Mine(0.5)) == "Mine"
    assert len(Mine(0.5).updates(granet.Clock(0))) == 0


def test_a_method_must_say_how_it_begins() -> None:
    with pytest.raises(TypeError):
        granet.Method(sparsity=0.5)  # type: ignore[abstract]
