"""Graphs of a model by ``torch.export`` (https://docs.pytorch.org/docs/stable/export.html): ONNX, or single nodes."""

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

from optest.backends.whole_models import Region, origin_in_trace, region_of
from optest.errors import Unavailable
from optest.numerics import Array, summation_errors
from optest.registry import is_installed
from optest.spec import Fault, Reason
from optest.torch.models.torch_model import TorchModel, as_tensors, tensors_in
from optest.torch.tensors import DTYPE_NAMES, from_torch, to_torch

# Operators whose results are sums of products.
_SUMS = tuple(f"aten.{name}" for name in ("addmm", "baddbmm", "bmm", "conv", "einsum", "linear", "matmul", "mm"))


class Graph:
    """Implementation of :class:`optest.backends.whole_models.ModelGraph` for a ``torch.export`` program.

    ``outputs_of`` maps the model's outputs to values of the graph. ``wide``: everything that the model computes in
    float32 is computed in float64. ``noisy``: in addition, sums of products get rounding errors, as
    :attr:`optest.onnx.graphs.Graph.perturbed` does.
    """

    def __init__(self, program: Any, outputs: Sequence[str], *, wide: bool = False, noisy: bool = False) -> None:
        nodes = list(program.graph.nodes)
        values = [node.name for node in torch.utils._pytree.tree_leaves(nodes[-1].args) if isinstance(node, Node)]
        self.program = program
        self.outputs_of: Mapping[str, str] = dict(zip(outputs, values, strict=True))
        self.inputs = tuple(node.name for node in nodes if node.op == "placeholder")
        self.outputs = tuple(values)
        # Assertions have no users.
        self.nodes = [node for node in nodes if node.op == "call_function" and node.users]
        self.node_of_value: Mapping[str, int] = {node.name: number for number, node in enumerate(self.nodes)}
        self._wide, self._noisy = wide, noisy

    @cached_property
    def widened(self) -> Graph:
        return Graph(self.program, [*self.outputs_of], wide=True)

    @cached_property
    def perturbed(self) -> Graph:
        return Graph(self.program, [*self.outputs_of], wide=True, noisy=True)

    def dtype_name(self, value: str) -> str:
        example = self.nodes[self.node_of_value[value]].meta.get("val")
        return DTYPE_NAMES.get(example.dtype, "") if isinstance(example, torch.Tensor) else ""

    def operator(self, number: int) -> str:
        target = self.nodes[number].target
        return "getitem" if target is operator.getitem else str(target)

    @property
    def random(self) -> str:
        return next((self.operator(number) for number, node in enumerate(self.nodes) if _is_random(node)), "")

    def origin_of(self, number: int) -> str:
        """Return a node's module, and the location and statement of the innermost frame outside torch."""
        meta = self.nodes[number].meta
        scopes = list((meta.get("nn_module_stack") or {}).values())
        module = re.sub(r"@\d+", "", scopes[-1][0]) if scopes else ""
        return origin_in_trace(meta.get("stack_trace") or "", module)

    def region(self, outputs: Sequence[str], given: Collection[str]) -> Region:
        return region_of(outputs, given, self.node_of_value, lambda number: _operand_names(self.nodes[number]))

    def stream(self, region: Region, given: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        nodes = [self.nodes[number] for number in region.nodes]
        values: dict[str, Any] = {name: to_torch(given[name], torch.device("cpu")) for name in region.inputs}
        # Values are deleted after their last use: a model's values may not fit into memory together.
        last = {name: node.name for node in nodes for name in _operand_names(node)}
        for node in nodes:
            value = self.value_of(node, values)
            if isinstance(value, torch.Tensor):
                yield node.name, from_torch(value)
            values[node.name] = value
            for name in {node.name, *_operand_names(node)}:
                if last.get(name, node.name) == node.name:
                    del values[name]

    def value_of(self, node: Any, values: Mapping[str, Any]) -> Any:
        """Compute a node from its operands; raise ``Fault`` REFERENCE_FAILED if a wide graph's node returns float32."""

        def argument(operand: Any) -> Any:
            is_constant = operand.op == "get_attr"
            return reduce(getattr, operand.target.split("."), self.program) if is_constant else values[operand.name]

        arguments = map_arg((node.args, node.kwargs), argument)
        if not self._wide:
            with torch.no_grad():
                return node.target(*arguments[0], **arguments[1])
        value = _call_wide(node, map_aggregate(arguments, _widen_value))
        if self._noisy and str(node.target).startswith(_SUMS) and value.is_floating_point():
            # The same sum of the operands' squares, and of ones: the squares of its terms, and their number.
            changed = (map_aggregate(arguments, partial(_apply_wide, of=of)) for of in (torch.square, torch.ones_like))
            squares, counts = (_call_wide(node, operands).numpy() for operands in changed)
            unit = torch.finfo(torch.float32).eps / 2
            value = value + torch.from_numpy(summation_errors(value.numpy(), squares, counts, unit))
        if any(tensor.dtype == torch.float32 for tensor in tensors_in(value)):
            raise Fault(Reason.REFERENCE_FAILED, f"{node.target} ({node.name}) returns float32 from float64 operands")
        return value


def _is_random(node: Any) -> bool:
    """Return whether a node draws random numbers: dropout and the like do so only in training, and if p is not 0."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    parameters = node.target._schema.arguments
    values = {parameter.name: parameter.default_value for parameter in parameters if parameter.has_default_value()}
    values |= dict(zip([parameter.name for parameter in parameters], node.args, strict=False)) | node.kwargs
    return not any(values[name] in (False, 0) for name in ("train", "training", "dropout_p", "p") if name in values)


def _operand_names(node: Any) -> tuple[str, ...]:
    """Return the names of a node's operands, without weights and constants."""
    return tuple(operand.name for operand in node.all_input_nodes if operand.op != "get_attr")


def _call_wide(node: Any, arguments: Any) -> Any:
    """Call a node's function with float64 as the default dtype, in which factories such as ``ones`` create tensors."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return node.target(*arguments[0], **arguments[1])
    finally:
        torch.set_default_dtype(default)


def _apply_wide(value: Any, of: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    wide = _widen_value(value)
    return of(wide) if isinstance(wide, torch.Tensor) and wide.is_floating_point() else wide


def _widen_value(value: Any) -> Any:
    """Return float32 tensors, and the dtype float32 of casts, as float64; other values unchanged."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype == torch.float32 else value
    return torch.float64 if value is torch.float32 else value


def graph_of(model: TorchModel, feeds: Mapping[str, Array]) -> Graph:
    """Return the model's graph by torch.export, decomposed if it has in-place operators, or raise ``Fault`` COMPILE."""
    with _exporting(model, "to a torch graph"):
        program = torch.export.export(model.module, (), kwargs=as_tensors(feeds))
        calls = (node.target for node in program.graph.nodes if node.op == "call_function")
        schemas = (getattr(target, "_schema", None) for target in calls if target is not operator.getitem)
        # In-place operators and regions cannot run node by node.
        if any(schema is None or schema.is_mutable for schema in schemas):
            program = program.run_decompositions({})
        return Graph(program.module(check_guards=False), model.outputs)


def exported_content(model: TorchModel, feeds: Mapping[str, Array]) -> bytes:
    """Return a serialised ONNX model with its weights, the model's input and output names, and source locations.

    Raises:
        Fault: COMPILE if torch's exporter fails, with the message of its first cause.
        Unavailable: if onnx or onnxscript is not installed.
    """
    missing = [package for package in ("onnx", "onnxscript") if not is_installed(package)]
    if missing:
        raise Unavailable(f"export to ONNX without {' and '.join(missing)}", "pip install onnx onnxscript")
    with _exporting(model, "to ONNX"):
        names: dict[str, Any] = {"input_names": list(feeds), "output_names": list(model.outputs)}
        program = torch.onnx.export(model.module, (), kwargs=as_tensors(feeds), dynamo=True, verbose=False, **names)
        # The property serialises the model at every access.
        proto = program.model_proto
        graph = Graph(program.exported_program.module(check_guards=False), model.outputs)
        # Nodes that the exporter's rewriting replaced have no location: copy that of the graph's node, whose name is a
        # prefix of the output's (``split`` for ``split_split_0``).
        for node in proto.graph.node:
            words = node.output[0].split("_") if not node.metadata_props else []
            prefixes = ("_".join(words[:count]) for count in range(len(words), 0, -1))
            name = next((prefix for prefix in prefixes if prefix in graph.node_of_value), None)
            if name is not None:
                meta = graph.nodes[graph.node_of_value[name]].meta
                scopes = [scope[0] for scope in (meta.get("nn_module_stack") or {}).values()]
                for key, value in (("name_scopes", [*scopes, name]), ("stack_trace", meta.get("stack_trace"))):
                    node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=f"{value}")
        return bytes(proto.SerializeToString())


@contextmanager
def _exporting(model: TorchModel, target: str) -> Iterator[None]:
    """Export silently, without gradients, warnings, log and output; convert any exception to a COMPILE fault."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # border: an exporter may raise anything
        # The first cause is the model's error; the later ones are the exporter's wrappers.
        cause: BaseException = error
        while (before := cause.__cause__ or cause.__context__) is not None:
            cause = before
        text = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
        reason = f"{type(cause).__name__}: {text}"
        raise Fault(Reason.COMPILE, f"export failed: {model.name} {target}: {reason}") from error
    finally:
        logging.disable(level)
