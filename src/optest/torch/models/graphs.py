"""Graphs of a model: ONNX by torch's exporter, and torch's own, whose steps can be run one by one.

Both come of ``torch.export`` on the CPU, with the shapes of the inputs fixed. Source of the forms:
https://docs.pytorch.org/docs/stable/export.html
"""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import torch
from torch.fx.node import map_aggregate, map_arg

from optest.errors import Unavailable
from optest.numerics import summation_errors
from optest.registry import is_installed
from optest.spec import Fault, Reason
from optest.torch.capture.places import TORCH_AND_OURS, code_at, shown_path
from optest.torch.models.adapters import TorchModel

__all__ = ["Graph", "Step", "exported", "exported_with_graph", "graph_of"]

Inputs = Mapping[str, torch.Tensor]
_SUMS = tuple(f"aten.{each}" for each in ("addmm", "baddbmm", "bmm", "conv", "einsum", "linear", "matmul", "mm"))
"""Operators whose results are sums of products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of a graph, and the module and source line that called it.

    ``name`` is that of its value, ``uses`` those of its operands but for weights and constants, ``releases`` the values
    that no later step needs. ``node`` is torch's own.
    """

    name: str
    operator: str
    module: str
    place: str
    code: str
    uses: tuple[str, ...]
    releases: tuple[str, ...]
    node: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Steps in the order of computation; ``outputs`` has the value of each of the model's outputs.

    ``wide``: computed in float64, where the model computes in float32: its weights and constants, its own casts to
    float32, and operators whose dtype is the default one. ``perturbed``: and sums of products have errors, as
    :attr:`optest.onnx.graphs.Graph.perturbed` says.
    """

    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    steps: tuple[Step, ...]
    program: Any = field(repr=False)
    wide: bool = False
    perturbed: bool = False

    def run_step(self, step: Step, values: Mapping[str, Any]) -> Any:
        """The value of one step, a tensor or a tuple of tensors, from those that it uses.

        Raises:
            Fault: REFERENCE_FAILED if float32 comes of a step that should compute in float64.
        """
        arguments = map_arg((step.node.args, step.node.kwargs), lambda node: self._value(node, values))
        if not self.wide:
            with torch.no_grad():
                return step.node.target(*arguments[0], **arguments[1])
        value = _called_wide(step, map_aggregate(arguments, _widened))
        if self.perturbed and step.operator.startswith(_SUMS) and value.is_floating_point():
            changed = (map_aggregate(arguments, partial(_changed, of=of)) for of in (torch.square, torch.ones_like))
            squares, counts = (_called_wide(step, each).numpy() for each in changed)
            unit = torch.finfo(torch.float32).eps / 2
            value = value + torch.from_numpy(summation_errors(value.numpy(), squares, counts, unit))
        if any(each.dtype == torch.float32 for each in _tensors(value)):
            raise Fault(Reason.REFERENCE_FAILED, f"{step.operator} ({step.name}) yields float32 from float64")
        return value

    def values(self, inputs: Inputs) -> Iterator[tuple[Step, Any]]:
        """Each step with its value, computed when it is asked for; what no later step needs is released."""
        held: dict[str, Any] = dict(inputs)
        for step in self.steps:
            held[step.name] = self.run_step(step, held)
            yield step, held[step.name]
            for name in step.releases:
                del held[name]

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """The model's outputs by name."""
        wanted = set(self.outputs.values())
        held: dict[str, Any] = {name: each for name, each in inputs.items() if name in wanted}
        held |= {step.name: value for step, value in self.values(inputs) if step.name in wanted}
        return {name: held[value] for name, value in self.outputs.items()}

    def _value(self, node: Any, values: Mapping[str, Any]) -> Any:
        return reduce(getattr, node.target.split("."), self.program) if node.op == "get_attr" else values[node.name]


def _called_wide(step: Step, arguments: Any) -> Any:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return step.node.target(*arguments[0], **arguments[1])
    finally:
        torch.set_default_dtype(default)


def _changed(each: Any, of: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    wide = _widened(each)
    return of(wide) if isinstance(wide, torch.Tensor) and wide.is_floating_point() else wide


def _widened(each: Any) -> Any:
    if isinstance(each, torch.Tensor):
        return each.double() if each.dtype == torch.float32 else each
    return torch.float64 if each is torch.float32 else each


def _tensors(value: Any) -> list[torch.Tensor]:
    return [each for each in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(each, torch.Tensor)]


def graph_of(model: TorchModel, inputs: Inputs) -> Graph:
    """The graph of a model as torch.export sees it, before decompositions.

    In-place operators and regions (of autocast) are replaced by what they compute, so that each step can run alone.

    Raises:
        Fault: COMPILE if torch.export fails, with its last message.
    """
    with _exporting(model, "to a graph of torch"):
        program = torch.export.export(model.module, (), kwargs=dict(inputs))
        if not all(_is_pure(node) for node in program.graph.nodes):
            program = program.run_decompositions({})
        return _graph(program, model)


def _is_pure(node: Any) -> bool:
    if node.op != "call_function" or node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable


def _graph(program: Any, model: TorchModel) -> Graph:
    module = program.module(check_guards=False)
    nodes = list(module.graph.nodes)
    computed = [node for node in nodes if node.op == "call_function" and node.users]  # assertions have no users
    outputs = [node.name for node in torch.utils._pytree.tree_leaves(nodes[-1].args) if isinstance(node, torch.fx.Node)]
    last_use: dict[str, str] = {}
    for node in computed:
        last_use[node.name] = node.name
        last_use.update((each.name, node.name) for each in node.all_input_nodes if each.op != "get_attr")
    releases: dict[str, list[str]] = {}
    for name, last in last_use.items():
        releases.setdefault(last, []).append(name)
    return Graph(
        inputs=tuple(node.name for node in nodes if node.op == "placeholder"),
        outputs=dict(zip(model.outputs, outputs, strict=True)),
        steps=tuple(_step(node, tuple(releases.get(node.name, ()))) for node in computed),
        program=module,
    )


def _step(node: Any, releases: tuple[str, ...]) -> Step:
    place, code = _source(node.meta.get("stack_trace") or "")
    scopes = list((node.meta.get("nn_module_stack") or {}).values())
    return Step(
        name=node.name,
        operator="getitem" if node.target is operator.getitem else str(node.target),
        module=re.sub(r"@\d+", "", scopes[-1][0]) if scopes else "",
        place=place,
        code=code,
        uses=tuple(each.name for each in node.all_input_nodes if each.op != "get_attr"),
        releases=releases,
        node=node,
    )


_FRAME = re.compile(r'File "([^"<]+)", line (\d+)')


def _source(stack: str) -> tuple[str, str]:
    """Place and statement of the innermost frame that is not torch's own."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack)]
    own = [each for each in frames if not each[0].startswith(TORCH_AND_OURS)] or frames
    if not own:
        return "", ""
    file, line = own[-1]
    return f"{shown_path(file)}:{line}", code_at(linecache.getlines(file), line)


def exported(model: TorchModel, inputs: Inputs, *, optimize: bool = True) -> bytes:
    """An ONNX model with its weights inside; inputs and outputs have the model's names, nodes their places.

    ``optimize``: with the exporter's own rewriting, which folds constants and batch norms.

    Raises:
        Fault: COMPILE if torch's exporter fails, with its last message.
        Unavailable: without onnx or onnxscript.
    """
    return exported_with_graph(model, inputs, optimize=optimize)[0]


def exported_with_graph(model: TorchModel, inputs: Inputs, *, optimize: bool = True) -> tuple[bytes, Graph]:
    """:func:`exported`, and the decomposed graph that it was made of: its values are called as those of ONNX."""
    missing = [each for each in ("onnx", "onnxscript") if not is_installed(each)]
    if missing:
        raise Unavailable(f"export to ONNX without {' and '.join(missing)}", "pip install optest[onnx]")
    with _exporting(model, "to ONNX"):
        program = torch.onnx.export(
            model.module,
            (),
            kwargs=dict(inputs),
            dynamo=True,
            optimize=optimize,
            verbose=False,
            input_names=list(inputs),
            output_names=list(model.outputs),
        )
        graph = _graph(program.exported_program, model)
        proto = program.model_proto
        _complete_places(proto, graph)
        content: bytes = proto.SerializeToString()
    return content, graph


def _complete_places(proto: Any, graph: Graph) -> None:
    """Say the place of nodes that the exporter's rewriting made anew, by the names of their values (split_split_0)."""
    steps = {step.name: step for step in graph.steps}
    for node in proto.graph.node:
        words = node.output[0].split("_") if not node.metadata_props else []
        names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
        step = next((steps[name] for name in names if name in steps), None)
        if step is not None:
            scopes = [each[0] for each in (step.node.meta.get("nn_module_stack") or {}).values()]
            for key, value in (
                ("name_scopes", [*scopes, step.name]),
                ("stack_trace", step.node.meta.get("stack_trace")),
            ):
                node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=f"{value}")


@contextlib.contextmanager
def _exporting(model: TorchModel, what: str) -> Iterator[None]:
    """Without gradients, warnings, log or output; an exception becomes one message."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            torch.no_grad(),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # border: an exporter may raise anything
        raise Fault(Reason.COMPILE, f"export failed: {model.name} {what}: {_last_message(error)}") from error
    finally:
        logging.disable(level)


def _last_message(error: BaseException) -> str:
    """Kind and first line of what caused it all."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"
