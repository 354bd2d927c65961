"""The state of a sparsifier as it is saved: tensors and plain values only, checked whole before any of it is used."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from granet.clock import Clock, in_epochs
from granet.hidden import Hidden
from granet.methods import Method, method_name
from granet.methods.former_names import present
from granet.names import matched
from granet.net import SparseNet
from granet.sparsifier.history import History, UpdateRecord
from granet.sparsifier.memory import check_memory, make_memory, memory_state
from granet.tensors.packing import pack_bits, unpack_bits

_KEYS = {"method", "step", "seed", "target_sparsity", "shapes", "masks", "history"}
PLAIN = (bool, int, float, str, type(None))
"""The types of fields that are saved."""
_LENGTHS = ("total_steps", "steps_per_epoch")
_KINDS: dict[str, Any] = {
    "fields": Mapping,
    "seed": int,
    "target_sparsity": int | float,
    "shapes": Mapping,
    "masks": Mapping,
}


@dataclass(frozen=True)
class SavedState:
    """A state dict that fits the model and the method it is to be loaded into."""

    step: int
    seed: int
    target: float
    masks: dict[str, Tensor]
    memory: list[tuple[Tensor, Tensor]]
    """The tensors that the method keeps here, each with its saved value."""
    history: list[UpdateRecord]
    hidden: Mapping[str, Mapping[str, Tensor]] | None
    """None if nothing was hidden, or no longer."""


def write_state(
    method: Method, clock: Clock, target: float, net: SparseNet, history: History, hidden: Hidden | None
) -> dict[str, Any]:
    """What :meth:`granet.Sparsifier.state_dict` returns."""
    return {
        "method": method_name(method),
        "fields": _fields(method),
        "step": clock.step,
        "total_steps": clock.total_steps,
        "steps_per_epoch": clock.steps_per_epoch,
        "seed": net.layers[0].seed,
        "target_sparsity": target,
        "shapes": _shapes(net),
        "masks": {layer.name: pack_bits(layer.mask) for layer in net.layers},
        "memory": memory_state(net),
        "history": history.state(),
    } | ({"hidden": hidden.state()} if hidden is not None else {})


def read_state(
    state: Mapping[str, Any], method: Method, clock: Clock, net: SparseNet, hidden: Hidden | None, begun: bool = True
) -> SavedState:
    """What :func:`write_state` wrote; ValueError if it is not of this model and method.

    Before training has ``begun`` here, nothing is hidden yet, and what the method keeps has no room yet: it is made.
    """
    missing = _KEYS - set(state) if isinstance(state, Mapping) else _KEYS
    if missing:
        raise ValueError(f"state: must be a sparsifier's state_dict, it has no {', '.join(sorted(missing))}")
    if state["method"] != (name := method_name(method)):
        raise ValueError(f"state['method']={state['method']!r}: must be {name!r}, as here")
    state = {"fields": {}, **state}  # states written by older versions have none
    if not isinstance(state["step"], int) or state["step"] < 0:
        raise ValueError(f"state['step']={state['step']!r}: must be a number of optimizer steps, 0 or more")
    for key, kind in _KINDS.items():
        if not isinstance(state[key], kind):
            raise ValueError(f"state[{key!r}]={state[key]!r}: must be what a sparsifier saves")
    saved = present(type(method), state["fields"])
    for name, here in _fields(method).items():
        there = saved.get(name, here)
        if type(there) not in PLAIN or there != here:
            raise ValueError(f"state['fields'][{name!r}]={there!r}: must be {here!r}, as here")
    state = _named_as_here(state, net)
    _check_shapes(_shapes(net), state["shapes"])
    _check_length(state, method, clock)
    if "hidden" in state and begun:
        if hidden is None:
            raise ValueError("state['hidden']: must not be of a training that goes on, this one is finished")
        hidden.check(state["hidden"])
    return SavedState(
        step=state["step"],
        seed=state["seed"],
        target=state["target_sparsity"],
        masks=_read_masks(state["masks"], net),
        history=_read_history(state["history"], list(state["shapes"]), net),
        memory=(check_memory if begun else make_memory)(net, state.get("memory", {})),
        hidden=state.get("hidden"),
    )


def _named_as_here(state: Mapping[str, Any], net: SparseNet) -> Mapping[str, Any]:
    """The state with the names that the layers have here, if it was saved under a wrapper's prefix, or these are."""
    here = {there: here for here, there in matched(_shapes(net), state["shapes"]).items()}

    def renamed(values: Any) -> Any:
        return (
            {here.get(name, name): value for name, value in values.items()} if isinstance(values, Mapping) else values
        )

    hidden = state.get("hidden")
    within = {kind: renamed(values) for kind, values in hidden.items()} if isinstance(hidden, Mapping) else hidden
    named = {key: renamed(state[key]) for key in ("shapes", "masks", "memory") if key in state}
    return {**state, **named} | ({"hidden": within} if "hidden" in state else {})


def _check_shapes(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    for name in [*here, *there]:
        if here.get(name) == there.get(name):
            continue
        message = f"state['shapes'][{name!r}]={there.get(name)}: must be {here.get(name)}, or it is of another model"
        if None in (here.get(name), there.get(name)):
            message += " (None: not sparsified; frozen weights are not)"
        ends = [other.removesuffix(name) for other in there if other.endswith(f".{name}") and name not in there]
        raise ValueError(message + (f"; names there begin with {ends[0]!r}" if ends else ""))


def _check_length(state: Mapping[str, Any], method: Method, clock: Clock) -> None:
    """ValueError if masks are still to change, and would at other moments than in the training that was saved.

    Only a longer training is let through: its schedule holds from here on.
    """
    if method.hidden and "hidden" not in state:  # after finish()
        return
    here = dataclasses.replace(clock, step=0)
    lengths = {name: state[name] for name in _LENGTHS if name in state}  # an older state has none
    there = dataclasses.replace(here, **lengths)
    if not any(step > state["step"] for each in (here, there) for step in method.updates(each)[-1:]):
        return
    for name in _LENGTHS if any(map(in_epochs, _fields(method).values())) else ("total_steps",):
        asked, saved = getattr(here, name), getattr(there, name)
        if asked == saved:
            continue
        if name != "total_steps" or None in (asked, saved):
            raise ValueError(f"{name}={asked}: must be {saved}, as when it was saved; masks are still to change")
        if asked < saved:
            raise ValueError(
                f"{name}={asked}: must be at least {saved}, as when it was saved; masks are still to change"
            )
        now = [method.target(dataclasses.replace(each, step=state["step"])) for each in (here, there)]
        warnings.warn(
            f"granet: total_steps={asked}: the saved training had {saved}; from step {state['step']} on masks follow "
            f"the schedule of the longer one, which is at sparsity {now[0]:.4g} there, not {now[1]:.4g}",
            stacklevel=5,
        )


def _fields(method: Method) -> dict[str, Any]:
    """The fields of a method that are plain values; in built-in methods all are."""
    values = {item.name: getattr(method, item.name) for item in dataclasses.fields(method)}
    return {name: value for name, value in values.items() if type(value) in PLAIN}


def _shapes(net: SparseNet) -> dict[str, list[int]]:
    return {layer.name: list(layer.weight.shape) for layer in net.layers}


def _read_masks(packed: Mapping[str, Tensor], net: SparseNet) -> dict[str, Tensor]:
    masks = {}
    for layer in net.layers:
        try:
            masks[layer.name] = unpack_bits(packed[layer.name], layer.weight.shape)
            net.check_mask(layer, masks[layer.name])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(
                f"state['masks'][{layer.name!r}]: must be the packed mask of that weight ({error})"
            ) from error
    return masks


def _read_history(records: list[dict[str, Any]], names: list[str], net: SparseNet) -> list[UpdateRecord]:
    """The records, with the layers' counts reordered from the order of ``names`` to that of this model."""
    places = [names.index(layer.name) for layer in net.layers]
    try:
        return [
            UpdateRecord.from_dict(record | {"active": [record["active"][place] for place in places]})
            for record in records
        ]
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(f"state['history']: must be a list of update records ({error})") from error
