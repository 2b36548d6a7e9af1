"""Graphs of a model: ONNX by torch's exporter, and torch's own, whose steps can be run one by one.

Both come of ``torch.export`` on the CPU, with the shapes of the inputs fixed. Source of the forms:
https://docs.pytorch.org/docs/stable/export.html
"""

from __future__ import annotations

import logging
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cached_property, partial, reduce
from io import StringIO
from typing import Any

import torch
from torch.fx.node import Node, map_aggregate, map_arg

from optest.backends.whole_models import Region, place_in, region_of
from optest.errors import Unavailable
from optest.numerics import Array, summation_errors
from optest.registry import is_installed
from optest.spec import Fault, Reason
from optest.torch.models.adapters import TorchModel, as_tensors, tensors_in
from optest.torch.tensors import DTYPE_NAMES, from_torch, to_torch

_SUMS = tuple(f"aten.{each}" for each in ("addmm", "baddbmm", "bmm", "conv", "einsum", "linear", "matmul", "mm"))
"""Operators whose results are sums of products."""


class Graph:
    """As :class:`optest.backends.whole_models.ModelGraph` says. ``outputs_of`` has the value of each of the model's
    outputs, ``program`` is torch's own.

    ``wide``: computed in float64, where the model computes in float32: its weights and constants, its own casts to
    float32, and operators whose dtype is the default one. ``noisy``: and sums of products have errors, as
    :attr:`optest.onnx.graphs.Graph.perturbed` says.
    """

    def __init__(self, program: Any, outputs: Sequence[str], *, wide: bool = False, noisy: bool = False) -> None:
        nodes = list(program.graph.nodes)
        values = [node.name for node in torch.utils._pytree.tree_leaves(nodes[-1].args) if isinstance(node, Node)]
        self.program = program
        self.outputs_of: Mapping[str, str] = dict(zip(outputs, values, strict=True))
        self.inputs = tuple(node.name for node in nodes if node.op == "placeholder")
        self.outputs = tuple(values)
        self.nodes = [node for node in nodes if node.op == "call_function" and node.users]  # assertions have no users
        self.makers: Mapping[str, int] = {node.name: number for number, node in enumerate(self.nodes)}
        self._wide, self._noisy = wide, noisy

    @cached_property
    def widened(self) -> Graph:
        return Graph(self.program, [*self.outputs_of], wide=True)

    @cached_property
    def perturbed(self) -> Graph:
        return Graph(self.program, [*self.outputs_of], wide=True, noisy=True)

    def dtype_name(self, value: str) -> str:
        held = self.nodes[self.makers[value]].meta.get("val")
        return DTYPE_NAMES.get(held.dtype, "") if isinstance(held, torch.Tensor) else ""

    def operator(self, number: int) -> str:
        target = self.nodes[number].target
        return "getitem" if target is operator.getitem else str(target)

    @property
    def random(self) -> str:
        return next((self.operator(number) for number, node in enumerate(self.nodes) if _is_random(node)), "")

    def place_of(self, number: int) -> str:
        """The module, and place and statement of the innermost frame that is not torch's own."""
        meta = self.nodes[number].meta
        scopes = list((meta.get("nn_module_stack") or {}).values())
        module = re.sub(r"@\d+", "", scopes[-1][0]) if scopes else ""
        return place_in(meta.get("stack_trace") or "", module)

    def region(self, outputs: Sequence[str], given: Collection[str]) -> Region:
        return region_of(outputs, given, self.makers, lambda number: _uses(self.nodes[number]))

    def stream(self, region: Region, given: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        nodes = [self.nodes[number] for number in region.nodes]
        values: dict[str, Any] = {name: to_torch(given[name], torch.device("cpu")) for name in region.inputs}
        last = {name: node.name for node in nodes for name in _uses(node)}
        for node in nodes:
            value = self.value_of(node, values)
            if isinstance(value, torch.Tensor):
                yield node.name, from_torch(value)
            values[node.name] = value
            for name in {node.name, *_uses(node)}:
                if last.get(name, node.name) == node.name:
                    del values[name]

    def value_of(self, node: Any, values: Mapping[str, Any]) -> Any:
        """What a node computes, a tensor or a tuple of tensors, from the values that it uses.

        Raises:
            Fault: REFERENCE_FAILED if float32 comes of a node that should compute in float64.
        """

        def argument(each: Any) -> Any:
            is_own = each.op == "get_attr"
            return reduce(getattr, each.target.split("."), self.program) if is_own else values[each.name]

        arguments = map_arg((node.args, node.kwargs), argument)
        if not self._wide:
            with torch.no_grad():
                return node.target(*arguments[0], **arguments[1])
        value = _called_wide(node, map_aggregate(arguments, _widened))
        if self._noisy and str(node.target).startswith(_SUMS) and value.is_floating_point():
            changed = (map_aggregate(arguments, partial(_changed, of=of)) for of in (torch.square, torch.ones_like))
            squares, counts = (_called_wide(node, each).numpy() for each in changed)
            unit = torch.finfo(torch.float32).eps / 2
            value = value + torch.from_numpy(summation_errors(value.numpy(), squares, counts, unit))
        if any(each.dtype == torch.float32 for each in tensors_in(value)):
            raise Fault(Reason.REFERENCE_FAILED, f"{node.target} ({node.name}) yields float32 from float64")
        return value


def _is_random(node: Any) -> bool:
    """Dropout and its like draw where a model is trained, and where the probability is not 0."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = node.target._schema.arguments
    values = {each.name: each.default_value for each in arguments if each.has_default_value()}
    values |= dict(zip([each.name for each in arguments], node.args, strict=False)) | node.kwargs
    return not any(values[name] in (False, 0) for name in ("train", "training", "dropout_p", "p") if name in values)


def _uses(node: Any) -> tuple[str, ...]:
    """The operands of a node but for weights and constants."""
    return tuple(each.name for each in node.all_input_nodes if each.op != "get_attr")


def _called_wide(node: Any, arguments: Any) -> Any:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return node.target(*arguments[0], **arguments[1])
    finally:
        torch.set_default_dtype(default)


def _changed(each: Any, of: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    wide = _widened(each)
    return of(wide) if isinstance(wide, torch.Tensor) and wide.is_floating_point() else wide


def _widened(each: Any) -> Any:
    if isinstance(each, torch.Tensor):
        return each.double() if each.dtype == torch.float32 else each
    return torch.float64 if each is torch.float32 else each


def graph_of(model: TorchModel, feeds: Mapping[str, Array]) -> Graph:
    """The graph of a model as torch.export sees it, before decompositions.

    In-place operators and regions (of autocast) are replaced by what they compute, so that each step can run alone.

    Raises:
        Fault: COMPILE if torch.export fails, with its last message.
    """
    with _exporting(model, "to a graph of torch"):
        program = torch.export.export(model.module, (), kwargs=as_tensors(feeds))
        calls = (node.target for node in program.graph.nodes if node.op == "call_function")
        schemas = (getattr(target, "_schema", None) for target in calls if target is not operator.getitem)
        if any(schema is None or schema.is_mutable for schema in schemas):
            program = program.run_decompositions({})
        return Graph(program.module(check_guards=False), model.outputs)


def exported_content(model: TorchModel, feeds: Mapping[str, Array]) -> bytes:
    """An ONNX model with its weights inside; inputs and outputs have the model's names, nodes their places.

    Raises:
        Fault: COMPILE if torch's exporter fails, with its last message.
        Unavailable: without onnx or onnxscript.
    """
    missing = [each for each in ("onnx", "onnxscript") if not is_installed(each)]
    if missing:
        raise Unavailable(f"export to ONNX without {' and '.join(missing)}", "pip install onnx onnxscript")
    with _exporting(model, "to ONNX"):
        names: dict[str, Any] = {"input_names": list(feeds), "output_names": list(model.outputs)}
        program = torch.onnx.export(model.module, (), kwargs=as_tensors(feeds), dynamo=True, verbose=False, **names)
        proto = program.model_proto  # made anew each time
        graph = Graph(program.exported_program.module(check_guards=False), model.outputs)
        for node in proto.graph.node:  # those that the exporter's rewriting made anew lack the place
            words = node.output[0].split("_") if not node.metadata_props else []  # split_split_0 is one of split
            within = ("_".join(words[:count]) for count in range(len(words), 0, -1))
            name = next((each for each in within if each in graph.makers), None)
            if name is not None:
                meta = graph.nodes[graph.makers[name]].meta
                scopes = [each[0] for each in (meta.get("nn_module_stack") or {}).values()]
                for key, value in (("name_scopes", [*scopes, name]), ("stack_trace", meta.get("stack_trace"))):
                    node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=f"{value}")
        return bytes(proto.SerializeToString())


@contextmanager
def _exporting(model: TorchModel, what: str) -> Iterator[None]:
    """Without gradients, warnings, log or output; an exception becomes one message."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # border: an exporter may raise anything
        cause: BaseException = error  # the first of all
        while (before := cause.__cause__ or cause.__context__) is not None:
            cause = before
        text = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
        why = f"{type(cause).__name__}: {text}"
        raise Fault(Reason.COMPILE, f"export failed: {model.name} {what}: {why}") from error
    finally:
        logging.disable(level)
