"""A model in torch as a graph of values, and as torch or one of its compilers runs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from safetensors.torch import load_file

from optest.backends.whole_models import Region, region_of, regions_of
from optest.errors import UsageError
from optest.numerics import Array
from optest.spec import Fault, Reason
from optest.torch.models.adapters import TorchModel, tensors_in
from optest.torch.models.graphs import Graph, exported, graph_of
from optest.torch.tensors import DTYPE_NAMES, from_torch, to_torch

__all__ = ["LEVELS", "TorchGraph", "TorchProgram", "exported_model", "graph_with_inputs"]

_CPU = torch.device("cpu")
LEVELS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
"""Backends of torch.compile, each of which does what the one before it does and more."""


class TorchGraph:
    """As :class:`optest.backends.whole_models.ModelGraph` says, of a model that torch.export has made a graph of."""

    def __init__(self, graph: Graph) -> None:
        self.torch_graph = graph
        self.inputs = graph.inputs
        self.outputs = tuple(graph.outputs.values())
        self.names = {value: name for name, value in graph.outputs.items()}
        self.makers: Mapping[str, int] = {step.name: number for number, step in enumerate(graph.steps)}

    @property
    def widened(self) -> TorchGraph:
        return TorchGraph(replace(self.torch_graph, wide=True))

    @property
    def perturbed(self) -> TorchGraph:
        return TorchGraph(replace(self.torch_graph, wide=True, perturbed=True))

    def dtype_name(self, value: str) -> str:
        held = self.torch_graph.steps[self.makers[value]].node.meta.get("val")
        return DTYPE_NAMES.get(held.dtype, "") if isinstance(held, torch.Tensor) else ""

    def operator(self, number: int) -> str:
        return self.torch_graph.steps[number].operator

    def place_of(self, number: int) -> str:
        step = self.torch_graph.steps[number]
        code = f"{step.place}: {step.code}" if step.code else step.place
        return ", ".join(each for each in (step.module, code) if each)

    def region(self, outputs: Sequence[str], given: Collection[str]) -> Region:
        return region_of(outputs, given, self.makers, lambda number: self.torch_graph.steps[number].uses)

    def stream(self, region: Region, given: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        steps = [self.torch_graph.steps[number] for number in region.nodes]
        values: dict[str, Any] = {name: to_torch(given[name], _CPU) for name in region.inputs}
        last = {name: step.name for step in steps for name in step.uses}
        for step in steps:
            value = self.torch_graph.run_step(step, values)
            if isinstance(value, torch.Tensor):
                yield step.name, from_torch(value)
            values[step.name] = value
            for name in {step.name, *step.uses}:
                if last.get(name, step.name) == step.name:
                    del values[name]


class TorchProgram:
    """``level`` is a backend of torch.compile, ``eager`` torch itself."""

    def __init__(self, model: TorchModel, graph: TorchGraph, level: str, device: str) -> None:
        if level != "eager" and level not in torch._dynamo.list_backends(exclude_tags=()):
            raise UsageError(f"torch.compile has no backend {level}, but {', '.join(torch._dynamo.list_backends())}")
        self._model = model
        self._level = level
        self._device = torch.device(device)
        self.graph = graph
        self.is_shown = True
        self._tapped: tuple[Mapping[str, Array], dict[str, Array]] | None = None

    def __str__(self) -> str:
        where = f"{self._device}, " * (self._device.type != "cpu")
        return (
            f"{len(self.graph.makers)} values; {where}float32, matmul precision "
            f"{torch.get_float32_matmul_precision()}, threads: {torch.get_num_threads()}; torch {torch.__version__}"
        )

    @property
    def levels(self) -> Sequence[str]:
        return LEVELS

    @cached_property
    def regions(self) -> Sequence[Region]:
        known = {name for name in self.graph.makers if self.graph.dtype_name(name)}
        return regions_of(self.graph, known)

    @cached_property
    def _whole(self) -> Any:
        return self._compiled(self._model.module)

    @property
    def passes(self) -> Sequence[str]:
        return ()

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        made = self._called(self._whole, feeds)
        return dict(zip(self.graph.outputs, made, strict=True))

    def made(self, region: Region, given: Mapping[str, Array]) -> dict[str, Array]:
        made = self._called(self._compiled(self._module(region)), {name: given[name] for name in region.inputs})
        return dict(zip(region.outputs, made, strict=True))

    def watched(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All values are further outputs of the graph that is compiled: see whether that changes the model's own."""
        if self._tapped is None or self._tapped[0] is not feeds:
            names = [name for region in self.regions for name in region.outputs]
            names += [name for name in self.graph.outputs if name not in names]
            region = self.graph.region(names, self.graph.inputs)
            self._tapped = feeds, self.made(region, feeds)
        return {name: self._tapped[1][name] for name in outputs}

    def _compiled(self, module: torch.nn.Module) -> Any:
        module = module.to(self._device)
        return module if self._level == "eager" else torch.compile(module, backend=self._level, fullgraph=True)

    def _called(self, module: Any, feeds: Mapping[str, Array]) -> list[Array]:
        tensors = {name: to_torch(value, self._device) for name, value in feeds.items()}
        try:
            with torch.no_grad():
                made = module(**tensors)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise Fault(Reason.COMPILE, f"torch.compile: {str(error).strip().partition(chr(10))[0]}") from error
        return [from_torch(each.cpu()) for each in tensors_in(made)]

    def _module(self, region: Region) -> torch.nn.Module:
        """The steps of a region as a module."""
        graph = torch.fx.Graph()
        known: dict[Any, Any] = {}
        by_name = {step.name: step.node for step in self.graph.torch_graph.steps}
        steps = [self.graph.torch_graph.steps[number].node for number in region.nodes]
        for name in region.inputs:
            source = by_name.get(name) or next(
                each for step in steps for each in step.all_input_nodes if each.name == name
            )
            known[source] = graph.placeholder(name)

        def copied(node: Any) -> Any:
            if node not in known:
                known[node] = graph.node_copy(node, copied)
            return known[node]

        for node in steps:
            copied(node)
        graph.output(tuple(known[by_name[name]] for name in region.outputs))
        return torch.fx.GraphModule(self.graph.torch_graph.program, graph)


def graph_with_inputs(model: TorchModel, inputs: str, seed: int) -> tuple[TorchGraph, dict[str, Array]]:
    """The graph of a model, and its inputs by name: those of a file of safetensors, or drawn by ``seed``.

    Raises:
        UsageError: for a file with other tensors than the model's inputs.
        Fault: COMPILE if torch.export fails.
    """
    tensors = _inputs(model, inputs, seed)
    graph = TorchGraph(graph_of(model, tensors))
    return graph, dict(zip(graph.inputs, map(from_torch, tensors.values()), strict=True))


def _inputs(model: TorchModel, inputs: str, seed: int) -> dict[str, torch.Tensor]:
    drawn = model.inputs(seed)
    if not inputs:
        return drawn
    found = load_file(inputs)
    if {*found} != {*drawn}:
        raise UsageError(f"{inputs} has {', '.join(sorted(found))}, but the model's inputs are {', '.join(drawn)}")
    return {name: found[name] for name in drawn}


def exported_model(
    model: TorchModel, inputs: str, seed: int, moved: Callable[[Array], Array]
) -> tuple[bytes, dict[str, Array], dict[str, Array]]:
    """The model in ONNX, its inputs, and its outputs by torch: in float32 (``name``), in float64 (``name.float64``),
    and in float64 with sums and inputs that were ``moved`` (``name.moved``)."""
    tensors = _inputs(model, inputs, seed)
    content = exported(model, tensors)
    graph = graph_of(model, tensors)
    wide = replace(graph, wide=True)
    feeds = {name: from_torch(value) for name, value in tensors.items()}
    by_place = dict(zip(graph.inputs, tensors.values(), strict=True))
    moved_by_place = {
        name: to_torch(moved(from_torch(value)), _CPU) if value.is_floating_point() else value
        for name, value in by_place.items()
    }
    perturbed = replace(wide, perturbed=True)
    runs = (("", graph, by_place), (".float64", wide, _widened(by_place)), (".moved", perturbed, moved_by_place))
    outputs = {
        f"{name}{suffix}": from_torch(value.contiguous())
        for suffix, each, given in runs
        for name, value in each.run(given).items()
    }
    return content, feeds, outputs


def _widened(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: each.double() if each.is_floating_point() else each for name, each in tensors.items()}
