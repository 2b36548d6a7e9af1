"""Whole ONNX models on a backend: run as a whole, or node by node as the backend has optimised them.

Values of a model and of its optimised graph are matched by structure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from itertools import chain, dropwhile, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from optest.backends.command_abilities import HasVariants
from optest.backends.whole_models import Region, regions_of
from optest.core.border import Border
from optest.errors import UsageError
from optest.numerics import Array, bits
from optest.onnx.driver import OnnxBackend
from optest.onnx.graphs import Graph
from optest.onnx.models import Model
from optest.spec import Fault, Reason, dtype

# Regions are loaded in groups, which takes half as long as loading each before its call.
_AHEAD = 16


class OnnxProgram:
    """ModelProgram of the ONNX model ``given``; ``optimized``, the output of another optimiser, runs in its place."""

    def __init__(self, driver: OnnxBackend, given: Graph, variant: str, optimized: bytes | None = None) -> None:
        self._driver = driver
        self.before = given
        self.is_shown = driver.shows_its_graph
        self.levels: Sequence[str] = driver.variants if isinstance(driver, HasVariants) else ("",)
        self._variant = variant
        self._content = given.content if optimized is None else optimized
        self._loaded: dict[Region, Any] = {}
        self._values: dict[str, Array] = {}
        self._dropped = set[str]()
        self._ahead: Iterator[Region] = iter(())
        self._readers = Counter[str]()
        self._feeds: Mapping[str, Array] | None = None

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self._driver.versions().items())
        name = self._driver.name
        run = f"which {name} optimises without showing the result"
        if self.is_shown:
            try:
                run = f"{len(self.graph.nodes)} as {name} runs them"
            except Fault:  # the case of the outputs reports the fault
                return f"{len(self.before.nodes)} nodes, which {name} refuses; {versions}"
        precision, threads = self._driver.precision_of(self._variant), self._driver.threads()
        known = list(filter(None, map(self.before.dtype_name, self.before.node_of_value)))
        floats = ", ".join(sorted({each for each in known if dtype(each).is_inexact}))
        nodes = f"{len(self.before.nodes)} nodes of {floats or 'no floats'}, {run}"
        nodes += f", {sum(len(each.outputs) for each in self.regions)} of {len(known)} values in both"
        others = [each for each in self.before.outputs if not self.before.dtype_name(each)]
        nodes += f"; not compared, as no tensors of numbers: {', '.join(others)}" if others else ""
        return f"{nodes}; float32 computed in {precision}, threads: {threads}; {versions}"

    @cached_property
    def _whole(self) -> Any:
        return self._accepted(lambda: self._driver.load(self._content, self._variant))

    def _accepted(self, load: Callable[[], Any]) -> Any:
        """Return ``load()``; extend the Fault of a refusal by the levels that accept and refuse the model."""
        try:
            with Border("the backend", Reason.COMPILE):
                return load()
        except Fault as fault:
            if fault.reason is not Reason.COMPILE or len(self.levels) < 2:
                raise
            accepting = []
            for level in self.levels:
                with suppress(Fault), Border("the backend", Reason.COMPILE):
                    self._driver.load(self._content, level)
                    accepting.append(level)
            refusing = ", ".join(each for each in self.levels if each not in accepting)
            more = f"; it loads at {', '.join(accepting)}, and is refused at {refusing}: see optest model bisect"
            raise Fault(fault.reason, fault.message + more * bool(accepting), details=fault.details) from fault

    @cached_property
    def _optimized(self) -> tuple[Graph, str]:
        content, variant = self._accepted(lambda: self._driver.optimized(self._content, self._variant))
        graph = Graph(content, constants=self.before.constants)
        for side in ("inputs", "outputs"):
            expected, actual = (getattr(x, side) for x in (self.before, graph))
            if expected != actual:
                names = f"{', '.join(actual) or 'none'}, expected {', '.join(expected)}, in this order"
                hint = f"to set them: torch.onnx.export(..., {side[:-1]}_names={list(expected)})"
                raise UsageError(f"{side} of the optimised model are {names}\n  {hint}")
        renamed = names_by_structure(self.before, graph) if self._content is not self.before.content else {}
        return graph.renamed(renamed, self.before), variant

    @property
    def graph(self) -> Graph:
        return self._optimized[0]

    @property
    def plain_variant(self) -> str:
        """Variant of the backend that runs :attr:`graph` without changes."""
        return self._optimized[1]

    @cached_property
    def regions(self) -> Sequence[Region]:
        # onnx cannot infer the types of results of ONNX Runtime's operators, so unknown types count as tensors.
        known = {
            each for each in self.before.node_of_value if each not in self.before.types or self.before.dtype_name(each)
        }
        return regions_of(self.graph, known)

    @cached_property
    def weights(self) -> Sequence[str]:
        return common_weights(self.before, self.graph)

    @cached_property
    def passes(self) -> Sequence[str]:
        return self._driver.passes(self._content, self._variant)

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self._called(self._whole, self.before.outputs, feeds)

    def whole_outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        # With one thread, as regions are: Conv and LSTM of ONNX Runtime compute other bits with two.
        program = self._accepted(lambda: self._driver.loaded_nodes(self._content, self._variant))
        return self._called(program, self.before.outputs, feeds)

    def run_region(self, region: Region, given: Mapping[str, Array]) -> dict[str, Array]:
        if region not in self._loaded:
            self._load(region, given)
            behind = dropwhile(lambda x: x != region, self.regions if self.is_shown else ())
            with suppress(Exception):  # the call of a refused region reports its error
                for later in islice(behind, 1, _AHEAD):
                    self._load(later, {})
        return self._called(self._loaded[region], region.outputs, {name: given[name] for name in region.inputs})

    def _load(self, region: Region, given: Mapping[str, Array]) -> None:
        graph, variant = self._optimized
        self._loaded[region] = self._driver.loaded_nodes(graph.cut(region, self.before.types, given), variant)

    def inner_values(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return ``outputs`` by running region after region; keep each value until its last reader has run."""
        if self._feeds is not feeds or not self._dropped.isdisjoint(outputs):
            constants = ((name, self.before.constant(name)) for name in self.before.outputs)
            self._values = {**feeds, **{name: value for name, value in constants if value is not None}}
            made = {*self._values, *(name for region in self.regions for name in region.outputs)}
            of_constants = (self.graph.region([each], ()) for each in self.before.outputs if each not in made)
            self._dropped, self._ahead = set(), chain(self.regions, of_constants)
            self._readers = Counter(name for region in self.regions for name in region.inputs)
        self._feeds = None  # if a region fails, the next call starts from the inputs
        while any(name not in self._values for name in outputs):
            region = next(self._ahead)
            self._values |= self.run_region(region, self._values)
            self._readers.subtract(region.inputs)
            for name in region.inputs:
                if self._readers[name] == 0 and name not in self.before.outputs and name not in feeds:
                    del self._values[name]
                    self._dropped.add(name)
        self._feeds = feeds
        return {name: self._values[name] for name in outputs}

    def specs(self) -> list[tuple[str, str, list[int | str]]]:
        return list(self.before.input_specs())

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[str, Array, str, str]]:
        """Run the optimised graph once; yield name, value, operator and origin of each value."""
        graph, given = self.graph, self.before
        nodes = {name: node for node in graph.nodes for name in node.output if name and graph.may_be_tensor(name)}
        made = self.run_region(Region(graph.inputs, tuple(nodes), tuple(range(len(graph.nodes)))), feeds)
        for name, value in made.items():
            yield (
                name,
                value,
                nodes[name].op_type,
                given.origin_of(given.node_of_value[name]) if name in given.node_of_value else "",
            )

    def files(self, _: Mapping[str, Array]) -> dict[str, bytes]:
        """Return the original and the optimised model by file name."""
        return {"model.onnx": self.before.content, "optimized.onnx": self.graph.content}

    def profile(self, feeds: Mapping[str, Array], trace: Path) -> list[tuple[str, int, float]]:
        model = Model(content=b"", op="", feeds=(), outputs=self.before.outputs)
        return self._driver.profile(self._content, self._variant, model, feeds, trace)

    def _called(self, program: Any, outputs: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        model = Model(content=b"", op="", feeds=(), outputs=tuple(outputs))
        given = {name: np.array(value) for name, value in feeds.items()}
        with Border("the backend", Reason.RAISED):
            made = self._driver.call(program, model, given)
        changed = [name for name, value in feeds.items() if np.any(bits(value) != bits(given[name]))]
        if changed:
            raise Fault(Reason.INPUT_MUTATED, f"the backend changed its inputs {', '.join(changed)}")
        if len(made) != len(outputs):
            reason = Reason.MISSING_OUTPUT if len(made) < len(outputs) else Reason.EXTRA_OUTPUT
            raise Fault(reason, f"the backend returned {len(made)} outputs, expected {len(outputs)}, as in the model")
        return dict(zip(outputs, made, strict=True))


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
