"""Methods by name, and methods as values."""

from __future__ import annotations

import dataclasses
import enum
import pickle

import numpy as np
import pytest
import torch

import granet
from granet import create_method, list_methods
from granet.methods import method_name, registry
from refusals import refused

HIDDEN = {"dpf", "gmp-original", "str", "vd"}
MOVING = {"deep-r", "dsr", "rigl", "rigl-itop", "set", "snfs", "snfs-fixed"}
BEFORE = {"grasp", "magnitude-init", "snip", "synflow"}
AFTER = {"lrr", "lth", "one-shot", "sis", "wanda"}
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
            "before_training",
            "needs_gradient",
            "needs_batches",
            "needs_trained",
            "hidden",
            "exact_target",
        )
    }
    assert capable == {
        "dense_to_sparse": {"granet", "gmp", "gs"} | HIDDEN,
        "sparse_to_sparse": {"granet", "static"} | MOVING,
        "regrows": {"granet", "prune-regrow"} | MOVING | HIDDEN,
        "before_training": BEFORE | PROBES | {"static"},
        "needs_gradient": {"granet", "prune-regrow", "rigl", "rigl-itop", "snfs", "snfs-fixed"},
        "needs_batches": {"grasp", "sis", "snip", "synflow", "wanda"},
        "needs_trained": AFTER,
        "hidden": HIDDEN,
        "exact_target": set(NAMES) - {"str", "vd", "sis"} - PROBES,
    }
    for info in infos.values():
        assert info.summary
        assert "\n" not in info.summary
        assert info.paper
        assert info.score
        assert bool(info.growth) == info.regrows
        assert info.target == (info.knob or "exact")
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


@pytest.mark.parametrize("info", list_methods(), ids=lambda info: info.name)
def test_fields_are_given_by_name(info: granet.MethodInfo) -> None:
    assert all(field.kw_only for field in dataclasses.fields(info.cls))
    with pytest.raises(TypeError, match="positional argument"):
        info.cls(0.9)  # type: ignore[call-arg]


GRADUAL = {
    "start": 0, "prune_end": "50%", "every": 1000, "distribution": "global", "last_density": 0.2, "dense_first": False,
}  # fmt: skip
GROWING = {
    "initial_sparsity": 0.0,
    "initial_distribution": None,
    "regrow": 0.5,
    "regrow_end": 0.005,
    "grow_batch_count": 1,
}
DEFAULTS: dict[str, dict[str, object]] = {
    "deep-r": {"distribution": "erk", "end": "100%", "l1": 1e-5, "noise": 1e-5, "log_every": 1000},
    "dpf": GRADUAL | {"every": 16},
    "dsr": {
        "distribution": "uniform", "every": 200, "end": "100%", "regrow": 0.1, "threshold": 1e-3, "tolerance": 0.1,
    },
    "gmp": GRADUAL | {"score": "magnitude"},
    "gmp-original": GRADUAL | {"distribution": "uniform", "dense_first": True},
    "granet": GRADUAL | {"score": "magnitude"} | GROWING,
    "grasp": {"batch_count": 1, "temperature": 200.0},
    "gs": {"start": "25%", "prune_end": "75%", "rounds": 10},
    "prune-once": {"rate": 0.5, "distribution": "global"},
    "prune-regrow": {"rate": 0.5, "distribution": "global"},
    "rigl": {
        "distribution": "erk", "every": 100, "end": "75%", "regrow": 0.3, "step_on_update": True, "grow_batch_count": 1,
    },
    "rigl-itop": {
        "distribution": "erk", "every": 1000, "end": "100%", "regrow": 0.5, "regrow_end": 0.005, "grow_batch_count": 1,
    },
    "set": {"distribution": "er", "every": "1ep", "end": "100%", "regrow": 0.3},
    "sis": {"tolerance": None, "batch_count": 4, "iterations": 100},
    "wanda": {"pattern": "fan-in", "batch_count": 4},
    "snfs": {
        "distribution": "uniform", "every": "1ep", "end": "100%", "momentum": 0.9, "regrow": 0.5, "regrow_end": 0.005,
    },
    "snfs-fixed": {"distribution": "erk", "every": 100, "end": "75%", "regrow": 0.3, "momentum": 0.9},
    "snip": {"batch_count": 1},
    "static": {"distribution": "erk"},
    "str": {"s_init": -100.0, "s_decay": None, "every": 1000},
    "synflow": {"rounds": 100},
    "vd": {
        "examples": 50_000, "kl_scale": 1.0, "start": 0, "end": "50%", "threshold": 3.0, "log_sigma2": -10.0,
        "every": 1000,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_names_no_field_is_the_same_from_release_to_release(name: str) -> None:
    fields = dataclasses.asdict(create_method(name, sparsity=0.8))
    assert fields == {"sparsity": 0.8, "pattern": "weight"} | DEFAULTS.get(name, {})


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
    method = create_method("granet", sparsity=0.9, initial_sparsity=0.5, every="1ep", prune_end="80ep")
    assert method == granet.GraNet(sparsity=0.9, initial_sparsity=0.5, every="1ep", prune_end="80ep")


@pytest.mark.parametrize("name", ["str", "vd"])
def test_a_sparsity_with_a_default_need_not_be_given(name: str) -> None:
    assert create_method(name).sparsity == 0


def test_a_users_own_method_goes_by_its_class_name() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(granet.Method):
        """Dense."""

        def begin(self, net: object) -> None:
            pass

    assert method_name(Mine(sparsity=0.5)) == "Mine"
    assert len(Mine(sparsity=0.5).updates(granet.Clock(0))) == 0


def test_a_users_own_method_may_make_a_field_itself() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(granet.Method):
        """Dense."""

        doubled: tuple[float, ...] = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            super().__post_init__()
            object.__setattr__(self, "doubled", (2 * self.sparsity,))

        def begin(self, net: object) -> None:
            pass

    assert Mine(sparsity=0.25).doubled == (0.5,)


def test_weights_may_return_in_an_update_of_ones_own_unless_it_says_otherwise() -> None:
    class Dense(granet.Method):
        def begin(self, net: object) -> None:
            pass

    class Growing(Dense):
        def update(self, net: object, clock: object) -> None:
            pass

    class Pruning(Growing):
        regrows = False

    class Again(Pruning):
        """With the update of its parent."""

    class OtherUpdate(granet.GMP):
        def update(self, net: object, clock: object) -> None:
            pass

    class Update:
        def update(self, net: object, clock: object) -> None:
            pass

    class Mixed(Update, granet.SNIP):  # type: ignore[misc]
        """With an update from a class that is no method."""

    classes = (Dense, Growing, Pruning, Again, OtherUpdate, Mixed)
    assert [cls.regrows for cls in classes] == [False, True, False, False, True, True]
    assert not granet.GMP.regrows and not granet.SNIP.regrows


@pytest.mark.parametrize("fact", ["regrows", "hidden", "has_target", "growht"])
def test_what_a_method_says_itself_is_not_told_to_the_registry(fact: str) -> None:
    with refused(fact, True, "score, growth, "):
        registry.register("mine", paper="none", **{fact: True})


class Side(enum.IntEnum):
    LEFT = 1
    RIGHT = 2


def test_of_a_users_own_fields_only_numbers_become_plain() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(granet.Method):
        """Dense."""

        side: Side
        tensor: torch.Tensor
        number: int

        def begin(self, net: object) -> None:
            pass

    method = Mine(sparsity=0.5, side=Side.RIGHT, tensor=torch.tensor([3]), number=np.int64(3))  # type: ignore[arg-type]
    assert method.side is Side.RIGHT
    assert isinstance(method.tensor, torch.Tensor)
    assert type(method.number) is int


def test_a_method_must_say_how_it_begins() -> None:
    with pytest.raises(TypeError):
        granet.Method(sparsity=0.5)  # type: ignore[abstract]


@pytest.mark.parametrize("module", ["mine", "granet_mine"])
def test_the_name_of_a_method_that_is_here_is_taken(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed copy of RigL would else find the finished runs of RigL, and take them for its own."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    copied = type("RigL", (granet.RigL,), {"__module__": module, "__doc__": "A changed copy."})
    with refused("name", "rigl"):
        registry.register("rigl", paper="none")(copied)
    assert type(create_method("rigl", sparsity=0.5)) is granet.RigL
    with refused("name", "dense"):
        registry.register("dense", paper="none")(copied)
    for _ in range(2):  # as when a cell of a notebook is run again
        registry.register("my-rigl", paper="none")(copied)
    assert type(create_method("my-rigl", sparsity=0.5)) is copied
    registry.register("rigl", paper="none")(granet.RigL)  # as when its module is loaded again


def test_states_are_of_one_method_when_its_cell_in_a_notebook_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

    def run_the_cell() -> granet.Sparsifier:
        cls = registry.register("my-static", paper="none")(type("Mine", (granet.Static,), {}))
        model = torch.nn.Linear(4, 4)
        return granet.sparsify(model, torch.optim.SGD(model.parameters()), cls(sparsity=0.5))

    first = run_the_cell()
    state = first.state_dict()
    second = run_the_cell()
    assert first.state_dict()["method"] == second.state_dict()["method"] == "my-static"
    first.load_state_dict(state)
    second.load_state_dict(first.state_dict())


def test_a_method_for_single_weights_takes_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    registry.register("single", paper="none")(type("Single", (granet.RigL,), {"takes_pattern": False}))
    info = list_methods()[-1]
    assert (info.name, info.takes_pattern, info.takes_groups) == ("single", False, ())


def test_a_method_without_a_docstring_has_no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an IndexError, or the signature that a dataclass has for a docstring."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

    class Plain(granet.RigL):
        pass

    registry.register("plain", paper="none")(Plain)
    registry.register("signature", paper="none")(dataclasses.dataclass(frozen=True)(Plain))
    assert [info.summary for info in list_methods()[-2:]] == ["", ""]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "../a", ".hidden", "-a", "two words", "a\n", None])
def test_a_name_that_makes_no_folder_of_its_own_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a run is named after its method; one in a folder of its own was never found again."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    with refused("name", name):
        registry.register(name, paper="none")
    for good in ("mine", "my-rigl", "rigl_2.1", "größer", "_mine"):
        registry.register(good, paper="none")(granet.RigL)


def test_a_default_that_dataclasses_do_not_see_is_refused() -> None:
    """Training would silently take that of the parent."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Untyped(granet.RigL):
        step_on_update = False

    class Undecorated(granet.RigL):
        every: int = 7

    for cls, field, value, stays in ((Untyped, "step_on_update", False, True), (Undecorated, "every", 7, 100)):
        with refused(field, value, cls.__name__, f"the default stays {stays}"):
            cls(sparsity=0.5)


def test_defaults_that_dataclasses_see_are_not() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
    class Slots(granet.RigL):
        every: int = 7

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Fields(granet.RigL):
        every: int = dataclasses.field(default=8)
        end: str = dataclasses.field(default_factory=lambda: "50%")

    class OnlyBehaves(Fields):
        needs_rate = True

    made = Slots(sparsity=0.5), Fields(sparsity=0.5), OnlyBehaves(sparsity=0.5)
    assert [(method.every, method.end) for method in made] == [(7, "75%"), (8, "50%"), (8, "50%")]
