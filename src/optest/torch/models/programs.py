"""Run a model with torch or one of its compilers, as a whole or in regions of its graph; arrays in and out."""

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
from optest.torch.models.graphs import Graph, exported_content, graph_of
from optest.torch.models.language import CausalAttention
from optest.torch.models.torch_model import TorchModel, as_tensors, tensors_in
from optest.torch.tensors import from_torch


class TorchProgram:
    """Implementation of :class:`optest.backends.whole_models.ModelProgram` for torch.

    ``variant`` is a backend of torch.compile, or ``eager``. ``feeds`` are example inputs. ``threads`` 0 keeps torch's
    number. ``graph`` is that of inputs with the shapes of ``feeds``; without it the model is exported when needed.
    """

    is_shown = True
    passes: Sequence[str] = ()
    weights: Sequence[str] = ()
    # Backends of torch.compile; each runs the stages of the one before it and more.
    levels: Sequence[str] = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")

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
        self._module = self._to_device(model.module)
        self._names = [*model.inputs(0)]
        self._graph, self._shapes = graph, _feed_shapes(feeds)
        self._keeping: torch.nn.Module | None = None
        self._called_again: set[torch.nn.Module] = set()
        self._tapped: tuple[Mapping[str, Array], dict[str, Array]] | None = None

    def __str__(self) -> str:
        parameters = list(self._model.module.parameters())
        kinds = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters})
        device = f"{self._device}, " * (self._device.type != "cpu")
        return (
            f"{sum(x.numel() for x in parameters):,} parameters; {device}{', '.join(kinds) or 'float32'}, matmul "
            f"precision {torch.get_float32_matmul_precision()}, threads: {torch.get_num_threads()}; "
            f"torch {torch.__version__}"
        )

    @property
    def graph(self) -> Graph:
        return self._graph or self._graph_for(self._feeds)

    def _graph_for(self, feeds: Mapping[str, Array]) -> Graph:
        """Return the graph for inputs of these shapes; export the model if the last graph has others."""
        if self._graph is None or self._shapes != _feed_shapes(feeds):
            self._graph, self._shapes = graph_with_feeds(self._model, feeds)[0], _feed_shapes(feeds)
        return self._graph

    @cached_property
    def regions(self) -> Sequence[Region]:
        return regions_of(self.graph, _tensor_names(self.graph))

    def specs(self) -> list[tuple[str, str, list[int | str]]]:
        return [(name, x.dtype.name, [f"size {n}" for n in range(x.ndim)]) for name, x in self._feeds.items()]

    @cached_property
    def _compiled_model(self) -> Any:
        return self._compile(self._module)

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        module = self._compiled_model if self._keeping is None else self._keeping
        outputs = self._call(module, dict(zip(self._names, feeds.values(), strict=True)))
        return dict(zip(self._model.outputs, outputs, strict=True))

    # torch runs the parts of a model with as many threads as the whole.
    whole_outputs = outputs

    def run_region(self, region: Region, given: Mapping[str, Array]) -> dict[str, Array]:
        module = self._compile(self._to_device(self._cut(region)))
        outputs = self._call(module, {name: given[name] for name in region.inputs})
        return dict(zip(region.outputs, outputs, strict=True))

    def inner_values(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return values inside the model, from one call of the compiled graph with all of its tensors as outputs.

        More outputs may change how a compiler fuses, and so the model's outputs: compare these with :meth:`outputs`.
        """
        if self._tapped is None or self._tapped[0] is not feeds:
            graph = self._graph_for(feeds)
            by_input = dict(zip(graph.inputs, feeds.values(), strict=True))
            self._tapped = feeds, self.run_region(graph.region(_tensor_names(graph), graph.inputs), by_input)
        return {name: self._tapped[1][name] for name in outputs}

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[str, Array, str, str]]:
        """Yield the name, value, operator and location of every tensor of the graph, in its order.

        Raises:
            Fault: UNSUPPORTED if keys and values are cached; COMPILE if the model cannot be exported to a graph.
        """
        if self._keeping is not None:
            message = "values inside the model cannot be shown with --kv-cache: the exported graph has no cache"
            raise Fault(Reason.UNSUPPORTED, message)
        graph = self._graph_for(feeds)
        names = {value: name for name, value in graph.outputs_of.items()}
        for name, value in self.inner_values(_tensor_names(graph), feeds).items():
            number = graph.node_of_value[name]
            yield names.get(name, name), value, graph.operator(number), graph.origin_of(number)

    def files(self, feeds: Mapping[str, Array]) -> dict[str, bytes]:
        """Return the exported graph as Python code, by file name."""
        program = self._graph_for(feeds).program
        return {"program.txt": program.print_readable(print_output=False).encode()}

    def profile(self, feeds: Mapping[str, Array], trace: Path) -> list[tuple[str, int, float]]:
        """Return name, count and seconds of each operator, without its callees, by torch.profiler; write its trace.

        Any cache of keys and values is dropped. Times are those of the device.
        """
        self._keeping = None
        self.outputs(feeds)
        with torch.profiler.profile() as profiler:
            self.outputs(feeds)
        profiler.export_chrome_trace(str(trace))
        time = "self_cpu_time_total" if self._device.type == "cpu" else "self_device_time_total"
        return [(event.key, event.count, getattr(event, time) / 1e6) for event in profiler.key_averages()]

    def keep_cache(self) -> bool:
        """Cache keys and values from now on, so that runs continue a sequence; return False if the model cannot."""
        # A copy: the graph is exported from the model without a cache.
        module = copy.deepcopy(self._module)
        attentions = [part for part in module.modules() if isinstance(part, CausalAttention)]
        for attention in attentions:
            attention.keeps = True
        self._keeping = module if attentions and self._variant == "eager" else None
        return self._keeping is not None

    def _to_device(self, module: torch.nn.Module) -> torch.nn.Module:
        """Return the module on the device; a copy if that is not the CPU, as the reference uses the module, too."""
        return module if self._device.type == "cpu" else copy.deepcopy(module).to(self._device)

    def _compile(self, module: torch.nn.Module) -> Any:
        return module if self._variant == "eager" else torch.compile(module, backend=self._variant)

    def _call(self, module: Any, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the module's outputs; after the first call of compiled code, check that they follow changed inputs."""
        tensors = {name: tensor.to(self._device) for name, tensor in as_tensors(feeds).items()}
        try:
            with torch.no_grad():
                outputs = tensors_in(module(**tensors))
                if isinstance(module, torch._dynamo.OptimizedModule) and module not in self._called_again:
                    self._called_again.add(module)

                    def run(function: Any, *inputs: torch.Tensor) -> list[torch.Tensor]:
                        return tensors_in(function(**dict(zip(tensors, inputs, strict=True))))

                    target = DeviceUnderTest("model", self._device, self._variant, compiled=lambda x: run(module, *x))
                    eager, inputs = partial(run, module._orig_mod), [*tensors.values()]
                    require_values_followed(eager, inputs, outputs, target, reverses=True)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise Fault(Reason.COMPILE, f"torch.compile: {str(error).strip().partition(chr(10))[0]}") from error
        return [from_torch(output) for output in outputs]

    def _cut(self, region: Region) -> torch.nn.Module:
        """Return the nodes of a region as a module."""
        source, graph = self.graph, torch.fx.Graph()
        nodes = [source.nodes[number] for number in region.nodes]
        by_name = {operand.name: operand for node in nodes for operand in (node, *node.all_input_nodes)}
        copies: dict[Any, Any] = {by_name[name]: graph.placeholder(name) for name in region.inputs}

        # Nodes that create tensors were recorded with the CPU.
        def on_device(argument: Any) -> Any:
            return self._device if isinstance(argument, torch.device) else argument

        def copy_node(node: Any) -> Any:
            if node not in copies:
                new = copies[node] = graph.node_copy(node, copy_node)
                new.args, new.kwargs = map_aggregate((new.args, new.kwargs), on_device)
            return copies[node]

        for node in nodes:
            copy_node(node)
        graph.output(tuple(copies[by_name[name]] for name in region.outputs))
        return torch.fx.GraphModule(source.program, graph)


def _tensor_names(graph: Graph) -> list[str]:
    return [name for name in graph.node_of_value if graph.dtype_name(name)]


def _feed_shapes(feeds: Mapping[str, Array]) -> list[tuple[int, ...]]:
    return [array.shape for array in feeds.values()]


def inputs_of(model: TorchModel, seed: int) -> dict[str, Array]:
    """Return example inputs as arrays by the names of forward's parameters."""
    return {name: from_torch(tensor) for name, tensor in model.inputs(seed).items()}


def graph_with_feeds(model: TorchModel, feeds: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """Return the graph for the shapes of ``feeds``, and the feeds by its input names; ``Fault`` COMPILE if it fails."""
    graph = graph_of(model, dict(zip(model.inputs(0), feeds.values(), strict=True)))
    return graph, dict(zip(graph.inputs, feeds.values(), strict=True))


def exported_model(
    model: TorchModel, feeds: Mapping[str, Array], moved: Callable[[Array], Array]
) -> tuple[bytes, dict[str, Array]]:
    """Return the model in ONNX, and its outputs by torch.

    These are float32 (``NAME``), float64 (``NAME.float64``), and float64 with rounding errors in sums and inputs
    perturbed by ``moved`` (``NAME.moved``).
    """
    graph, inputs = graph_with_feeds(model, feeds)
    region, outputs = graph.region(graph.outputs, graph.inputs), dict[str, Array]()
    perturbed = {name: moved(array) for name, array in inputs.items()}
    runs = (("", graph, inputs), (".float64", graph.widened, inputs), (".moved", graph.perturbed, perturbed))
    for suffix, variant, arrays in runs:
        values = {**arrays, **{name: value for name, value in variant.stream(region, arrays) if name in graph.outputs}}
        outputs |= {f"{name}{suffix}": values[value] for name, value in graph.outputs_of.items()}
    return exported_content(model, feeds), outputs
