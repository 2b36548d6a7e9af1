"""A model in torch as a graph of values, and as torch or one of its compilers runs it; arrays in and out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch.fx.node import map_aggregate

from optest.backends.whole_models import Region, regions_of
from optest.numerics import Array
from optest.spec import Fault, Reason
from optest.torch.calls.compiled import require_compiler
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.recompiled_calls import require_values_followed
from optest.torch.devices import open_device
from optest.torch.models.adapters import TorchModel, as_tensors, tensors_in
from optest.torch.models.graphs import Graph, exported_content, graph_of
from optest.torch.models.language import CausalAttention
from optest.torch.tensors import from_torch


class TorchProgram:
    """As :class:`optest.backends.whole_models.ModelProgram` says. ``variant`` is a backend of torch.compile, ``eager``
    torch itself.

    ``feeds`` are example inputs. ``threads`` 0 leaves torch its own number. A ``graph`` for inputs of such shapes is
    exported once it is needed.
    """

    is_shown = True
    passes: Sequence[str] = ()
    weights: Sequence[str] = ()
    levels: Sequence[str] = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
    """Backends of torch.compile, each of which does what the one before it does and more."""

    def __init__(
        self,
        model: TorchModel,
        feeds: Mapping[str, Array],
        variant: str = "eager",
        device: str = "",
        threads: int = 0,
        graph: Graph | None = None,
    ) -> None:
        if variant != "eager":
            require_compiler(variant)
        if threads:
            torch.set_num_threads(threads)
        self._model, self._feeds, self._variant = model, feeds, variant
        self._device = open_device(device or "cpu")
        self._module = self._placed(model.module)
        self._names = [*model.inputs(0)]
        self._graph, self._shapes = graph, _shapes(feeds)
        self._keeping: torch.nn.Module | None = None
        self._called_again: set[torch.nn.Module] = set()
        self._tapped: tuple[Mapping[str, Array], dict[str, Array]] | None = None

    def __str__(self) -> str:
        parameters = list(self._model.module.parameters())
        kinds = sorted({str(each.dtype).removeprefix("torch.") for each in parameters})
        where = f"{self._device}, " * (self._device.type != "cpu")
        return (
            f"{sum(each.numel() for each in parameters):,} parameters; {where}{', '.join(kinds) or 'float32'}, matmul "
            f"precision {torch.get_float32_matmul_precision()}, threads: {torch.get_num_threads()}; "
            f"torch {torch.__version__}"
        )

    @property
    def graph(self) -> Graph:
        return self._graph or self._graph_for(self._feeds)

    def _graph_for(self, feeds: Mapping[str, Array]) -> Graph:
        if self._graph is None or self._shapes != _shapes(feeds):
            self._graph, self._shapes = graph_with_feeds(self._model, feeds)[0], _shapes(feeds)
        return self._graph

    @cached_property
    def regions(self) -> Sequence[Region]:
        return regions_of(self.graph, _tensors_of(self.graph))

    def specs(self) -> list[tuple[str, str, list[int | str]]]:
        return [(name, each.dtype.name, [f"size {n}" for n in range(each.ndim)]) for name, each in self._feeds.items()]

    @cached_property
    def _whole(self) -> Any:
        return self._compiled(self._module)

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        module = self._whole if self._keeping is None else self._keeping
        made = self._called(module, dict(zip(self._names, feeds.values(), strict=True)))
        return dict(zip(self._model.outputs, made, strict=True))

    unwatched = outputs  # torch runs the parts of a model with as many threads as the whole

    def made(self, region: Region, given: Mapping[str, Array]) -> dict[str, Array]:
        module = self._compiled(self._placed(self._cut(region)))
        made = self._called(module, {name: given[name] for name in region.inputs})
        return dict(zip(region.outputs, made, strict=True))

    def watched(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All values are further outputs of the graph that is compiled: see whether that changes the model's own."""
        if self._tapped is None or self._tapped[0] is not feeds:
            graph = self._graph_for(feeds)
            by_place = dict(zip(graph.inputs, feeds.values(), strict=True))
            self._tapped = feeds, self.made(graph.region(_tensors_of(graph), graph.inputs), by_place)
        return {name: self._tapped[1][name] for name in outputs}

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[str, Array, str, str]]:
        """Every tensor of torch's graph, in its order, as :meth:`watched` has them.

        Raises:
            Fault: UNSUPPORTED where the model keeps keys and values; COMPILE if it cannot be exported to a graph.
        """
        if self._keeping is not None:
            raise Fault(Reason.UNSUPPORTED, "no values inside are shown with --kv-cache: the graph is that without")
        graph = self._graph_for(feeds)
        names = {value: name for name, value in graph.outputs_of.items()}
        for name, value in self.watched(_tensors_of(graph), feeds).items():
            number = graph.makers[name]
            yield names.get(name, name), value, graph.operator(number), graph.place_of(number)

    def files(self, feeds: Mapping[str, Array]) -> dict[str, bytes]:
        """torch's graph as code."""
        program = self._graph_for(feeds).program
        return {"program.txt": program.print_readable(print_output=False).encode()}

    def profiled(self, feeds: Mapping[str, Array], trace: Path) -> list[tuple[str, int, float]]:
        """By torch.profiler, without a cache: time of the operator itself, on the device."""
        self._keeping = None
        self.outputs(feeds)
        with torch.profiler.profile() as profiler:  # of every activity that torch can see here
            self.outputs(feeds)
        profiler.export_chrome_trace(str(trace))
        time = "self_cpu_time_total" if self._device.type == "cpu" else "self_device_time_total"
        return [(each.key, each.count, getattr(each, time) / 1e6) for each in profiler.key_averages()]

    def keep_cache(self) -> bool:
        """Keep keys and values from here on, so that a run is about further tokens; False for a model that cannot."""
        module = copy.deepcopy(self._module)  # the graph is that of the model without
        attentions = [each for each in module.modules() if isinstance(each, CausalAttention)]
        for each in attentions:
            each.keeps = True
        self._keeping = module if attentions and self._variant == "eager" else None
        return self._keeping is not None

    def _placed(self, module: torch.nn.Module) -> torch.nn.Module:
        """On the device, where the reference does not follow."""
        return module if self._device.type == "cpu" else copy.deepcopy(module).to(self._device)

    def _compiled(self, module: torch.nn.Module) -> Any:
        return module if self._variant == "eager" else torch.compile(module, backend=self._variant)

    def _called(self, module: Any, feeds: Mapping[str, Array]) -> list[Array]:
        tensors = {name: each.to(self._device) for name, each in as_tensors(feeds).items()}
        try:
            with torch.no_grad():
                made = module(**tensors)
                if isinstance(module, torch._dynamo.OptimizedModule) and module not in self._called_again:
                    self._called_again.add(module)

                    def called(each: Any, *given: torch.Tensor) -> list[torch.Tensor]:
                        return tensors_in(each(**dict(zip(tensors, given, strict=True))))

                    again = DeviceUnderTest("model", self._device, self._variant, compiled=lambda x: called(module, *x))
                    plain, given = partial(called, module._orig_mod), [*tensors.values()]
                    require_values_followed(plain, given, tensors_in(made), again, reverses=True)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise Fault(Reason.COMPILE, f"torch.compile: {str(error).strip().partition(chr(10))[0]}") from error
        return [from_torch(each) for each in tensors_in(made)]

    def _cut(self, region: Region) -> torch.nn.Module:
        """The nodes of a region as a module."""
        graph = torch.fx.Graph()
        whole = self.graph
        nodes = [whole.nodes[number] for number in region.nodes]
        by_name = {node.name: node for made in nodes for node in (made, *made.all_input_nodes)}
        known: dict[Any, Any] = {by_name[name]: graph.placeholder(name) for name in region.inputs}

        def on_device(argument: Any) -> Any:
            """Where a node makes a tensor: not on the CPU where the graph was recorded."""
            return self._device if isinstance(argument, torch.device) else argument

        def copied(node: Any) -> Any:
            if node not in known:
                made = known[node] = graph.node_copy(node, copied)
                made.args, made.kwargs = map_aggregate((made.args, made.kwargs), on_device)
            return known[node]

        for node in nodes:
            copied(node)
        graph.output(tuple(known[by_name[name]] for name in region.outputs))
        return torch.fx.GraphModule(whole.program, graph)


def _tensors_of(graph: Graph) -> list[str]:
    return [name for name in graph.makers if graph.dtype_name(name)]


def _shapes(feeds: Mapping[str, Array]) -> list[tuple[int, ...]]:
    return [each.shape for each in feeds.values()]


def inputs_of(model: TorchModel, seed: int) -> dict[str, Array]:
    """Example inputs by the names of forward's parameters."""
    return {name: from_torch(each) for name, each in model.inputs(seed).items()}


def graph_with_feeds(model: TorchModel, feeds: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """The graph of a model for inputs of such shapes, and these by its own names for them.

    Raises:
        Fault: COMPILE if torch.export fails.
    """
    graph = graph_of(model, dict(zip(model.inputs(0), feeds.values(), strict=True)))
    return graph, dict(zip(graph.inputs, feeds.values(), strict=True))


def exported_model(
    model: TorchModel, feeds: Mapping[str, Array], moved: Callable[[Array], Array]
) -> tuple[bytes, dict[str, Array]]:
    """The model in ONNX, and its outputs by torch: in float32 (``name``), in float64 (``name.float64``), and in float64
    with sums and inputs that were ``moved`` (``name.moved``)."""
    graph, given = graph_with_feeds(model, feeds)
    region, outputs = graph.region(graph.outputs, graph.inputs), dict[str, Array]()
    other = {name: moved(each) for name, each in given.items()}
    graphs = (("", graph, given), (".float64", graph.widened, given), (".moved", graph.perturbed, other))
    for suffix, each, fed in graphs:
        made = {**fed, **{name: value for name, value in each.stream(region, fed) if name in graph.outputs}}
        outputs |= {f"{name}{suffix}": made[value] for name, value in graph.outputs_of.items()}
    return exported_content(model, feeds), outputs
