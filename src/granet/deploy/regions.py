"""A graph is cut into regions that plans compute, and what is around them, which PyTorch runs.

Going through the graph, a node's level rises by one wherever it goes from what a plan can hold to what it cannot, or
back. What a plan can hold of one level is a region. No path leaves a region and comes back: levels never fall.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import fx

from granet.deploy.constants import Constants
from granet.deploy.draft import Draft, Same, drafted, shape_of
from granet.deploy.fuse import to_plan
from granet.deploy.operators import Conv, Linear, Shape
from granet.deploy.plan import Plan

aten = torch.ops.aten


@dataclass(frozen=True)
class Region:
    """Nodes that one plan computes."""

    plan: Plan
    inputs: tuple[fx.Node, ...]
    outputs: tuple[tuple[fx.Node, ...], ...]
    """For each output of the plan the nodes that have its value."""


def cut(module: fx.GraphModule) -> tuple[fx.GraphModule, list[Plan]]:
    """The graph with calls of ``plan_0``, ``plan_1``, ... in the place of their regions, and the plans."""
    keep_mean_dimensions(module.graph)
    module.graph.eliminate_dead_code()
    constants = Constants(module)
    found = {node: what for node in module.graph.nodes if (what := drafted(node, constants)) is not None}
    for node, what in list(found.items()):
        if isinstance(what, Same) and what.source not in found:
            del found[node]
    levels = _levels(module.graph, found)
    order = {node: number for number, node in enumerate(module.graph.nodes)}
    regions: dict[int, Region] = {}
    for level in sorted({levels[node] for node in found}):
        nodes = [node for node in found if levels[node] == level]
        if (region := _region(nodes, found, order)) is not None:
            regions[level] = region
        else:
            for node in nodes:
                del found[node]
    return _rebuilt(module, found, levels, regions), [region.plan for region in regions.values()]


def keep_mean_dimensions(graph: fx.Graph) -> None:
    """A mean that drops its dimensions becomes one that keeps them, and a reshape."""
    for node in list(graph.nodes):
        if node.target != aten.mean.dim or (len(node.args) > 2 and node.args[2]) or node.kwargs:
            continue
        source, dimensions = node.args[:2]
        value = source.meta.get("val")
        if value is None or value.ndim != 4 or len(dimensions or ()) != 2:
            continue
        with graph.inserting_before(node):
            kept = graph.call_function(aten.mean.dim, (source, dimensions, True))
            kept.meta["val"] = aten.mean.dim(value, dimensions, True)
            node.target, node.args = aten.reshape.default, (kept, list(node.meta["val"].shape))


def _levels(graph: fx.Graph, found: dict[fx.Node, Draft | Same]) -> dict[fx.Node, int]:
    levels: dict[fx.Node, int] = {}
    for node in graph.nodes:
        levels[node] = max(
            (levels[source] + ((source in found) != (node in found)) for source in node.all_input_nodes), default=0
        )
    last = max(levels.values()) + 1
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            levels[node] = last  # what is written, buffers, is read before
    return levels


def _region(nodes: list[fx.Node], found: dict[fx.Node, Draft | Same], order: dict[fx.Node, int]) -> Region | None:
    """None if there is no layer in it: a plan is not worth its call then."""
    inside = set(nodes)
    roots: dict[fx.Node, fx.Node] = {}
    drafts: dict[fx.Node, Draft] = {}
    inputs: dict[fx.Node, Shape] = {}
    for node in nodes:
        what = found[node]
        if isinstance(what, Same):
            roots[node] = roots[what.source]
            continue
        roots[node] = node
        for source in what.reads:
            if source not in inside:
                roots[source] = source
                inputs[source] = shape_of(source) or ()
        drafts[node] = Draft(what.op, tuple(roots[source] for source in what.reads), what.weight, what.bias)
    if not any(isinstance(draft.op, Conv | Linear) for draft in drafts.values()):
        return None
    outputs: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for node in nodes:
        if any(user not in inside for user in node.users):
            outputs[roots[node]].append(node)
    inputs = {source: inputs[source] for source in sorted(inputs, key=order.__getitem__)}
    plan = to_plan(drafts, inputs, list(outputs))
    return Region(plan, tuple(inputs), tuple(map(tuple, outputs.values())))


def _rebuilt(
    module: fx.GraphModule, found: dict[fx.Node, Draft | Same], levels: dict[fx.Node, int], regions: dict[int, Region]
) -> fx.GraphModule:
    """Level by level: what is around a region first, which nothing in it reads, and then the region."""
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    around: dict[int, list[fx.Node]] = defaultdict(list)
    for node in module.graph.nodes:
        if node is not output and node not in found:
            around[-1 if node.op == "placeholder" else levels[node]].append(node)
    for level in range(-1, max(levels.values()) + 1):
        for node in around[level]:
            known[node] = graph.node_copy(node, known.__getitem__)
        if (region := regions.get(level)) is not None:
            name = f"plan_{list(regions).index(level)}"
            call = graph.call_module(name, tuple(known[source] for source in region.inputs))
            for number, nodes in enumerate(region.outputs):
                item = graph.call_function(operator.getitem, (call, number))
                known.update(dict.fromkeys(nodes, item))
    graph.output(fx.map_arg(output.args[0], known.__getitem__))
    for name in [f"plan_{number}" for number in range(len(regions))]:
        module.add_submodule(name, torch.nn.Identity())
    graph.owning_module = module
    graph.eliminate_dead_code()  # weights that are in plans now
    return fx.GraphModule(module, graph)
