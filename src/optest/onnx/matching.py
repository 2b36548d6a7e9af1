"""Matching of values between a model and its optimised graph by structure."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from itertools import zip_longest

import onnx

from optest.backends.whole_models import Region
from optest.numerics import Array
from optest.onnx.graphs import Graph
from optest.spec import Fault


def names_by_structure(before: Graph, after: Graph) -> dict[str, str]:
    """Return new names for inner values of ``after``: the name of the same value in ``before``, or a name that is new.

    Values are the same if operator, attributes and inputs are the same, from the model's inputs and equal constants on.
    Return {}, which keeps all names, if names match as many values with their operators and no shape contradicts.
    """

    def differ(name: str) -> bool:
        kinds = [graph.types[name].tensor_type for graph in (before, after) if name in graph.types]
        sizes = [[size.dim_value for size in kind.shape.dim] for kind in kinds if kind.HasField("shape")]
        return len(sizes) == 2 and any(a != b and a != 0 != b for a, b in zip_longest(*sizes))

    if any(x.HasField("g") for node in after.nodes for x in node.attribute):
        return {}  # the nodes of branches and loops read values by name, too
    operators = (
        {name: each.operator(number) for name, number in each.node_of_value.items()} for each in (before, after)
    )
    kept = len(set.intersection(*({*each.items()} for each in operators)))
    origins = {key: name for name, key in reversed(_keys(before).items())}
    same = {name: origins[key] for name, key in _keys(after).items() if key in origins}
    if len(same) <= kept and not any(differ(name) for name in before.node_of_value if name in after.node_of_value):
        return {}
    inside = [*after.node_of_value, *(after.constants.keys() & before.node_of_value.keys())]
    renamed = {name: f"{name}, optimised" for name in inside if name not in after.outputs}
    first = {origin: name for name, origin in reversed(same.items()) if name in renamed and origin not in after.outputs}
    return renamed | {name: origin for origin, name in first.items()}


def common_weights(before: Graph, after: Graph) -> list[str]:
    """Return the computed constants that both graphs have and that no changed node of ``after`` reads."""
    # An optimizer may change a weight together with the nodes that read it.
    kept = {(node.op_type, *node.input, *node.output) for node in before.nodes}
    changed = [node for node in after.nodes if (node.op_type, *node.input, *node.output) not in kept]
    common = after.constant_nodes.keys() - {each for node in changed for each in node.input}
    return [name for name in before.constant_nodes if name in common and before.dtype_name(name)]


def _keys(graph: Graph) -> dict[str, str]:
    """Return for each value a hash of all nodes that compute it; of a constant, a hash of its content."""
    constants: dict[str, Array] = {name: onnx.numpy_helper.to_array(value) for name, value in graph.constants.items()}
    with suppress(Fault):  # a node without a reference
        constants.update(graph.stream(Region((), (), tuple(sorted({*graph.constant_nodes.values()}))), {}))
    keys = {name: name for name in ("", *graph.inputs)}
    keys |= {
        name: f"{each.dtype} {each.shape} {sha256(each.tobytes()).hexdigest()}" for name, each in constants.items()
    }
    for node in graph.nodes:
        inputs = [keys.get(each, f"{id(graph)} {each}") for each in node.input]
        attributes = {each.name: each for each in node.attribute}
        if onnx.defs.has(node.op_type, node.domain):  # ONNX Runtime writes down attributes that are the default
            schema = onnx.defs.get_schema(node.op_type, graph.opsets.get(node.domain, 1), node.domain)
            usual = {name: each.default_value for name, each in schema.attributes.items() if each.default_value.name}
            attributes = usual | attributes
        stated = [f"{name}={onnx.helper.get_attribute_value(each)}" for name, each in sorted(attributes.items())]
        inputs = sorted(inputs) if node.op_type in ("Add", "Max", "Min", "Mul", "Sum") else inputs
        text = " ".join([node.domain, node.op_type, *stated, *inputs])
        for place, name in enumerate(node.output):
            keys.setdefault(name, sha256(f"{text} {place}".encode()).hexdigest())
    return {name: keys[name] for name in graph.node_of_value}
