"""A whole ONNX model on a backend: as it is run, and node by node as the backend has optimised it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from optest.backends.abilities import HasVariants
from optest.backends.whole_models import Region, regions_of
from optest.errors import UsageError
from optest.numerics import Array
from optest.onnx.driver import OnnxBackend
from optest.onnx.graphs import Graph
from optest.onnx.models import Model

__all__ = ["OnnxProgram"]


class OnnxProgram:
    """``given`` is the model before anybody optimises it, ``optimized`` what another optimiser than the backend's has
    made of it."""

    def __init__(self, driver: OnnxBackend, given: Graph, variant: str, optimized: bytes | None = None) -> None:
        self._driver = driver
        self.before = given
        self._variant = variant
        self._content = given.content if optimized is None else optimized
        self._loaded: dict[tuple[str, ...], Any] = {}
        self._values: dict[str, Array] = {}
        self._dropped = set[str]()
        self._readers = Counter[str]()
        self._feeds: Mapping[str, Array] | None = None

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self._driver.versions().items())
        name = self._driver.name
        run = f"{len(self.graph.nodes)} as {name} runs them" if self.is_shown else f"which {name} runs in its own way"
        nodes = f"{len(self.before.nodes)} nodes, {run}"
        precision, threads = self._driver.precision_of(self._variant), self._driver.threads()
        return f"{nodes}; {precision}, threads: {threads}; {versions}"

    @cached_property
    def _whole(self) -> Any:
        return self._driver.loaded(self._content, self._variant)

    @cached_property
    def _optimized(self) -> tuple[Graph, str]:
        content, variant = self._driver.optimized(self._content, self._variant)
        graph = Graph(content)
        if {*graph.outputs} != {*self.before.outputs}:
            own, others = (", ".join(sorted(each.outputs)) for each in (self.before, graph))
            raise UsageError(f"the optimized model has the outputs {others}, but should have {own}")
        return graph, variant

    @property
    def graph(self) -> Graph:
        """The nodes that are run."""
        return self._optimized[0]

    @property
    def is_shown(self) -> bool:
        return self._driver.shows_its_graph

    @property
    def plain_variant(self) -> str:
        """The variant of the backend that runs :attr:`graph` as it is."""
        return self._optimized[1]

    @property
    def levels(self) -> Sequence[str]:
        """The variants of the backend, the first of which optimises least."""
        return self._driver.variants if isinstance(self._driver, HasVariants) else ("",)

    @cached_property
    def regions(self) -> Sequence[Region]:
        """What makes each value that the model has before it is optimised, too, in the order of the nodes."""
        known = {name for name in self.before.makers if self.before.dtype_name(name)}
        return regions_of(self.graph, known)

    @cached_property
    def passes(self) -> Sequence[str]:
        return self._driver.passes(self._content, self._variant)

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What the backend answers, by the names of the model's outputs."""
        return self._called(self._whole, self.before.outputs, feeds)

    def made(self, region: Region, given: Mapping[str, Array]) -> dict[str, Array]:
        """What the nodes of a region make of ``given``, each by itself."""
        if region.outputs not in self._loaded:
            graph, variant = self._optimized
            content = graph.cut(region.outputs, region.inputs, self.before.types)
            self._loaded[region.outputs] = self._driver.loaded_nodes(content, variant)
        return self._called(self._loaded[region.outputs], region.outputs, {name: given[name] for name in region.inputs})

    def watched(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Values of the optimised graph, computed region by region from ``feeds``; each is kept until its last reader
        has run."""
        if self._feeds is not feeds or any(name in self._dropped for name in outputs):
            self._feeds, self._values, self._dropped, self._readers = feeds, dict(feeds), set(), self._counted()
        pending = [self._maker[name] for name in outputs]
        while pending:
            region = pending[-1]
            missing = [self._maker[name] for name in region.inputs if not self._is_made(name)]
            if missing:
                pending += missing
                continue
            pending.pop()
            if self._is_made(region.outputs[0]):
                continue
            self._values |= self.made(region, self._values)
            self._readers.subtract(region.inputs)
            for name in region.inputs:
                if self._readers[name] == 0 and name not in self.before.outputs and name not in feeds:
                    del self._values[name]
                    self._dropped.add(name)
        return {name: self._values[name] for name in outputs}

    def _is_made(self, name: str) -> bool:
        return name in self._values or name in self._dropped

    @cached_property
    def _maker(self) -> Mapping[str, Region]:
        return {name: region for region in self.regions for name in region.outputs}

    def _counted(self) -> Counter[str]:
        return Counter(name for region in self.regions for name in region.inputs)

    def _called(self, program: Any, outputs: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        model = Model(content=b"", op="", feeds=(), outputs=tuple(outputs))
        return dict(zip(outputs, self._driver.called(program, model, feeds), strict=True))
