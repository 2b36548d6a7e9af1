"""ONNX models as graphs, which can be cut into models of a few nodes and evaluated in their dtypes or in float64."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

from optest.backends.whole_models import Region, origin_in_trace, region_of
from optest.core.border import Border
from optest.errors import UsageError
from optest.numerics import Array, dtype_of, summation_errors
from optest.onnx.evaluated_operators import OPERATORS, left_out
from optest.onnx.models import DTYPE_NAMES, ELEMENT_TYPES
from optest.spec import Fault, Reason, dtype

_FLOATS = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT)
# Attributes that set the dtype of a result.
_TYPES = ("to", "dtype", "output_datatype")
# Operators whose results are sums: of products, of their input, or of two halves of it that cancel.
_SUMS = (
    "Conv", "ConvTranspose", "CumSum", "DFT", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "Gelu", "Gemm",
    "MatMul", "MatMulNBits", "ReduceL1", "ReduceSum", "ReduceSumSquare", "STFT",
)  # fmt: skip
_LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
_MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")
_NORMS = (
    "InstanceNormalization", "LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)  # fmt: skip
# Least number of partial sums that a normalization computes in parallel.
_LANES = 16
# Prefix of the metadata in which torch's exporter keeps module, source line and torch name of a node.
_PLACE = "pkg.torch.onnx."


def opened_file(path: Path) -> bytes:
    """Return a serialized model from its file, with the tensors that are stored in other files.

    Raises:
        UsageError: for a missing file, an invalid model, or a missing file of a tensor.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        model = onnx.load(path)
        content = bytes(model.SerializeToString())
        # onnx.checker is stricter than runtimes: IR 3 requires each constant among the inputs, unlike ONNX Runtime's
        # example mul_1.onnx; a graph needs a name, and an output a shape.
        model.ir_version = max(model.ir_version, 4)
        model.graph.name = model.graph.name or "graph"
        for each in model.graph.input:
            if each.type.HasField("tensor_type") and not each.type.tensor_type.HasField("shape"):
                raise UsageError(f"{path}: input {each.name} has no shape; give it one (sizes may be open)")
        for each in model.graph.output:
            if each.type.HasField("tensor_type"):
                each.type.tensor_type.shape.SetInParent()
        for node in model.graph.node:
            if node.op_type == "SimplifiedLayerNormalization":  # ONNX Runtime puts it into the domain of ONNX
                node.op_type = "Gelu"  # any operator of com.microsoft, which onnx.checker accepts
                node.domain = "com.microsoft"
        onnx.checker.check_model(model.SerializeToString())
    except DecodeError as error:
        raise UsageError(f"{path} is not an ONNX model: {error}") from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{path}: {str(error).strip().partition(chr(10))[0]}") from error
    return content


def tensor_of_file(path: Path) -> Array:
    """Return the tensor of a .pb file; raise ValueError for another file."""
    try:
        return np.asarray(numpy_helper.to_array(onnx.load_tensor(path), base_dir=str(path.absolute().parent)))
    except (DecodeError, KeyError, TypeError, onnx.checker.ValidationError) as error:
        raise ValueError(f"not an ONNX tensor: {error}") from error


class Graph:
    """The nodes of a model in order, its values and their types; ``constants`` are names of inputs to ignore."""

    def __init__(self, content: bytes, model: Any = None, constants: Collection[str] = ()) -> None:
        self.content = content
        if model is None:
            model = onnx.load_from_string(content)
            model = onnx.inliner.inline_local_functions(model) if model.functions else model
        self._model = model
        self.opsets = {each.domain: each.version for each in model.opset_import}
        self._narrow: Graph | None = None
        graph = self._model.graph
        self.nodes: Sequence[Any] = list(graph.node)
        self.constants = {each.name: each for each in graph.initializer}
        names = (each.name for each in graph.input)
        self.inputs = tuple(each for each in names if each not in self.constants and each not in constants)
        self.outputs = tuple(each.name for each in graph.output)
        self._read_by = [tuple(_read_by(node)) for node in self.nodes]
        self._evaluators: dict[tuple[int, Any], Any] = {}
        self._unit_of: Callable[[str], float] | None = None
        self.node_of_value: Mapping[str, int] = {
            name: number for number, node in enumerate(self.nodes) for name in node.output if name
        }

    @functools.cached_property
    def types(self) -> Mapping[str, Any]:
        """Declared or inferred type (element type and sizes) by value; values of unknown type are absent."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                graph = onnx.shape_inference.infer_shapes(self._model).graph
            except onnx.shape_inference.InferenceError:
                # Declared types of inner values may be wrong, as in models of ONNX Runtime GenAI.
                model = onnx.ModelProto()
                model.CopyFrom(self._model)
                del model.graph.value_info[:]
                graph = onnx.shape_inference.infer_shapes(model).graph
        stated = self._model.graph.value_info
        return {each.name: each.type for each in (*stated, *graph.value_info, *graph.input, *graph.output)}

    def input_specs(self) -> Iterator[tuple[str, str, list[int | str]]]:
        """Yield name, dtype and sizes of each input; an open size (−1 in some files) is its name, "" without one."""
        for each in self._model.graph.input:
            if each.name not in self.constants:
                sizes = each.type.tensor_type.shape.dim
                yield (
                    each.name,
                    self.dtype_name(each.name),
                    [int(x.dim_value) if x.HasField("dim_value") and x.dim_value >= 0 else x.dim_param for x in sizes],
                )

    @functools.cached_property
    def open_sizes(self) -> list[str]:
        """Names of the open sizes of the inputs."""
        shapes = [each.type.tensor_type.shape.dim for each in self._model.graph.input]
        return sorted({size.dim_param for shape in shapes for size in shape if size.dim_param})

    def dtype_name(self, value: str) -> str:
        """Return the dtype of a value, "" if it is unknown or no tensor."""
        type_ = self.types.get(value)
        return "" if type_ is None else DTYPE_NAMES.get(type_.tensor_type.elem_type, "")

    def may_be_tensor(self, value: str) -> bool:
        """Return whether a value is a tensor or of unknown type."""
        return value not in self.types or bool(self.types[value].HasField("tensor_type"))

    def constant(self, value: str) -> Array | None:
        tensor = self.constants.get(value)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def readers(self, value: str) -> list[tuple[Any, int]]:
        """Return the nodes that read a value, each with the index of that input."""
        return [(node, list(node.input).index(value)) for node in self.nodes if value in node.input]

    def operator(self, number: int) -> str:
        return str(self.nodes[number].op_type)

    @functools.cached_property
    def constant_nodes(self) -> dict[str, int]:
        """The :attr:`node_of_value` whose values follow from constants only."""
        constant = dict[str, int]()
        for name, number in self.node_of_value.items():
            if all(x in constant or x in self.constants or not x for x in self._read_by[number]):
                constant[name] = number
        return constant

    def renamed(self, names: Mapping[str, str], before: Graph) -> Graph:
        """Rename values in place, add Constant nodes for constants that ``before`` computes; return the new graph."""
        graph = self._model.graph
        for node in graph.node:
            node.input[:] = [names.get(each, each) for each in node.input]
            node.output[:] = [names.get(each, each) for each in node.output]
        for constant in graph.initializer:
            constant.name = names.get(constant.name, constant.name)
        for constant in [each for each in graph.initializer if each.name in before.node_of_value]:
            graph.node.insert(0, helper.make_node("Constant", [], [constant.name], value=constant))
            graph.initializer.remove(constant)
        return Graph(self.content, self._model, before.constants)

    @property
    def random(self) -> str:
        """First operator that draws random numbers, else ""."""
        for node in self.nodes:
            trains = node.input[2] if node.op_type == "Dropout" and len(node.input) > 2 else ""
            is_trained = self.constant(trains) if trains else np.array(False)
            if node.op_type in _RANDOM or is_trained is None or is_trained:
                return str(node.op_type)
        return ""

    def origin_of(self, number: int) -> str:
        """Return the module and source line of a node, as torch's exporter records them, "" if it did not."""
        kept = {each.key.removeprefix(_PLACE): each.value for each in self.nodes[number].metadata_props}
        scopes = [each.strip(" '\"[]") for each in kept.get("name_scopes", "").split(",")]
        return origin_in_trace(kept.get("stack_trace", ""), scopes[-2] if len(scopes) > 1 else "")

    def region(self, outputs: Sequence[str], given: Collection[str]) -> Region:
        """Return the region of nodes that computes ``outputs`` from ``given`` and the graph's inputs."""
        return region_of(outputs, given, self.node_of_value, self._read_by.__getitem__, self.constants.keys())

    def cut(self, region: Region, types: Mapping[str, Any], given: Mapping[str, Array]) -> bytes:
        """Return a region as a serialized model; ``types`` are known types, ``given`` known values of its inputs."""
        model = self._model_of(region, types)
        for each in model.graph.input:
            value = given.get(each.name)
            if value is not None and (value.ndim == 1 or each.name not in types):
                # ONNX Runtime refuses a Resize if it does not know how many sizes there are.
                sizes = value.shape if value.ndim == 1 else [None] * value.ndim
                each.type.CopyFrom(helper.make_tensor_type_proto(ELEMENT_TYPES[dtype_of(value.dtype).name], sizes))
        read = dict.fromkeys(name for number in region.nodes for name in self._read_by[number])
        model.graph.initializer.extend(self.constants[name] for name in read if name in self.constants)
        return bytes(model.SerializeToString())

    def _model_of(self, region: Region, types: Mapping[str, Any]) -> Any:
        model = onnx.ModelProto(ir_version=self._model.ir_version, opset_import=self._model.opset_import)
        model.graph.name = "region"
        model.graph.node.extend(self.nodes[number] for number in region.nodes)
        for stated, names in ((model.graph.input, region.inputs), (model.graph.output, region.outputs)):
            for name in filter(None, names):
                type_ = types.get(name)
                if type_ is not None and type_.HasField("tensor_type"):  # sizes may differ from call to call
                    known = type_.tensor_type
                    rank = [None] * len(known.shape.dim) if known.HasField("shape") else None
                    type_ = helper.make_tensor_type_proto(known.elem_type, rank)
                stated.add(name=name, type=type_)
        return model

    @functools.cached_property
    def widened(self) -> Graph:
        """The same graph in float64: constants, declared types and dtypes in attributes; computed once.

        Nodes without anything to widen share their evaluators with this graph.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        _widen_graph(model.graph)
        graph = Graph(self.content, model)
        graph._narrow = self
        return graph

    @functools.cached_property
    def perturbed(self) -> Graph:
        """:attr:`widened` with errors as large as sequential rounding may make them; computed once.

        They are added to the first output of sums, means, norms, losses and Resize, and to the weights of GRU, LSTM and
        RNN, in units of the value's dtype, at most those of float32; to integers none.
        """
        graph = copy.copy(self.widened)
        graph._unit_of = self._unit_roundoff
        return graph

    def stream(self, region: Region, given: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        """Evaluate a region; yield the name and value of each output node by node.

        Raises:
            Fault: UNSUPPORTED for an operator that ONNX's evaluator lacks, computes wrongly or fails in; BAD_CASE if it
                fails in a model with open sizes: then the chosen sizes are probably wrong.
        """
        values = dict(given)  # each value is dropped after its last reader
        last = {name: number for number in region.nodes for name in self._read_by[number]}
        for number in region.nodes:
            read = {name for name in self._read_by[number] if name}
            feeds = {name: values[name] if name in values else self.constant(name) for name in read}
            with np.errstate(all="ignore"):
                node = self.nodes[number]
                if self._unit_of is not None and node.op_type in ("GRU", "LSTM", "RNN"):
                    for name in {*node.input[1:3]}:  # rounding errors of their sums are modelled as changed weights
                        weights, rng = np.asarray(feeds[name]), np.random.default_rng(number)
                        moves = self._unit_of(name) * rng.uniform(-1, 1, weights.shape) * np.sqrt(weights.shape[-1])
                        feeds[name] = weights * (1 + moves)
                if unsupported := left_out(node):
                    raise Fault(Reason.UNSUPPORTED, f"no reference for {node.op_type} with {unsupported}")
                operator = f"{node.domain}.{node.op_type}".removeprefix(".")
                context, reason = f"no reference for {operator}: onnx.reference", Reason.UNSUPPORTED
                # Operators of ai.onnx.ml fail for other reasons: the evaluator's LinearClassifier accepts no batch.
                if self.open_sizes and not node.domain.startswith("ai.onnx.ml"):
                    sizes = ", ".join(self.open_sizes)
                    context, reason = f"the inputs do not fit; --config sets {sizes}: {node.op_type}", Reason.BAD_CASE
                with Border(context, reason):
                    outputs = self._evaluator(number).run(None, feeds)
                if self._unit_of is not None and node.op_type in (*_SUMS, *_LOSSES, *_MEANS, *_NORMS, "Resize"):
                    unit = self._unit_of(node.output[0])
                    errors = self._errors(number, feeds, outputs[0], unit) if unit else 0
                    outputs = [outputs[0] + errors, *outputs[1:]]
            named = dict(zip(filter(None, node.output), outputs, strict=True))
            yield from named.items()
            values |= {name: value for name, value in named.items() if name in last}
            for name in read:
                if last[name] == number:
                    values.pop(name, None)

    def _errors(self, number: int, feeds: Mapping[str, Any], total: Array, unit: float) -> Array:
        """Return errors of a node's result, as large as sequential rounding with ``unit`` may make them."""
        node = self.nodes[number]
        if node.op_type == "Gelu":  # x/2 and x/2 · erf or tanh of another number may cancel
            return summation_errors(total, np.square(feeds[node.input[0]]), np.array(2.0), unit)
        if node.op_type == "Resize":  # positions between elements have an error like float32 at their size
            x = feeds[node.input[0]]
            span, reach = np.ptp(x) if x.size else 0.0, 2.0 * max(x.shape, default=1)
            return summation_errors(total, np.asarray(span**2), np.array(reach**2), unit)
        if node.op_type in ("DFT", "STFT"):  # each element is a sum over the whole signal
            return summation_errors(total, 2 * np.mean(np.square(total)), np.array(2 * total.shape[-2]), unit)
        if node.op_type in _NORMS:  # mean and variance of a row are sums
            x, scale = feeds[node.input[0]], feeds[node.input[2 if node.op_type.startswith("Skip") else 1]]
            row = x[0, 0].size if node.op_type == "InstanceNormalization" else scale.size
            squares = np.sum(np.square(total)) / max(total.size, 1)
            return summation_errors(total, np.asarray(squares), np.array(row // _LANES), unit)
        if node.op_type in _LOSSES:  # a sum of losses; a mean divides it by the sum of the weights
            stated = {each.name: helper.get_attribute_value(each) for each in node.attribute}
            reduction, target = stated.get("reduction", b"mean"), feeds[node.input[1]]
            of_classes = feeds.get([*node.input, ""][2], 1.0)
            weights = np.where(target == stated.get("ignore_index"), 0, np.take(of_classes, target, mode="clip"))
            losses = self._evaluator(number, np.positive).run(None, feeds)[0]
            of_losses, of_weights = (
                np.abs(summation_errors(np.sum(x), np.sum(np.square(x)), np.array(x.size), unit))
                for x in (losses, weights)
            )
            if reduction != b"mean":
                return np.asarray(of_losses * (reduction == b"sum"))
            of_weights *= np.ndim(of_classes)  # 0 if the sum of weights is a count, which is exact
            return np.asarray(np.hypot(of_losses, total * of_weights) / np.abs(np.sum(weights)))
        squares, counts = (
            self._evaluator(number, of).run(
                None, {name: of(value) if value.dtype.kind == "f" else value for name, value in feeds.items()}
            )[0]
            for of in (np.square, np.ones_like)
        )
        if node.op_type in _MEANS:
            kernel = next((each.ints for each in node.attribute if each.name == "kernel_shape"), None)
            counts = np.prod(kernel) if kernel else feeds[node.input[0]].size / max(total.size, 1)
            squares = squares / counts
        return summation_errors(total, squares, counts, unit)

    def _unit_roundoff(self, value: str) -> float:
        """Return the unit roundoff of a value's dtype, at most that of float32; 0 for integers."""
        # Sums of 16-bit floats are computed in float32.
        kind = dtype(self.dtype_name(value) or "float32")
        return min(kind.unit_roundoff, dtype("float32").unit_roundoff) if kind.is_inexact else 0.0

    def _evaluator(self, number: int, of: Callable[[Any], Any] | None = None) -> Any:
        """Return the evaluator of a node; with ``of``, apply it to the node's factors and drop its activation."""
        node, narrow, key = self.nodes[number], self._narrow, (number, of)
        if key not in self._evaluators and narrow is not None and node == narrow.nodes[number]:
            self._evaluators[key] = narrow._evaluator(number, of)
        elif key not in self._evaluators:
            read = tuple(dict.fromkeys(self._read_by[number]))
            model = self._model_of(Region(read, tuple(node.output), (number,)), {})
            for attribute in model.graph.node[0].attribute:
                if of is not None and attribute.name in ("alpha", "beta"):
                    attribute.f = float(of(attribute.f))
                elif of is not None and attribute.name == "activation":
                    attribute.s = b""
            if (
                of is not None and node.op_type == "MatMulNBits"
            ):  # its weights are packed, so that the operator applies it
                model.graph.node[0].attribute.append(helper.make_attribute("of", of.__name__))
            elif of is not None and node.op_type in _LOSSES:  # the last attribute of a name counts
                model.graph.node[0].attribute.append(helper.make_attribute("reduction", "none"))
            with Border("onnx.reference", Reason.UNSUPPORTED):
                try:
                    self._evaluators[key] = ReferenceEvaluator(model, new_ops=OPERATORS)
                except RuntimeError as error:
                    if isinstance(error, NotImplementedError):  # the operator is missing, not only this version of it
                        raise
                    model = version_converter.convert_version(model, 21)
                    self._evaluators[key] = ReferenceEvaluator(model, new_ops=OPERATORS)
        return self._evaluators[key]


def _read_by(node: Any) -> Iterator[str]:
    """Yield the names that a node reads, including outer values read by its subgraphs."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
            inner = {value.name for value in (*graph.input, *graph.initializer)}
            inner |= {name for child in graph.node for name in child.output}
            yield from (name for child in graph.node for name in _read_by(child) if name not in inner)
            yield from (value.name for value in graph.output if value.name not in inner)


def _widen_graph(graph: Any) -> None:
    """Convert a graph and its subgraphs to float64 in place."""
    for each in graph.initializer:
        _widen_tensor(each)
    for each in (*graph.input, *graph.output):
        if each.type.tensor_type.elem_type in _FLOATS:
            each.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                _widen_graph(attribute.g)
            elif attribute.type == AttributeProto.INT and attribute.name in _TYPES and attribute.i in _FLOATS:
                attribute.i = TensorProto.DOUBLE
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
        elif node.op_type.endswith("Window") and all(each.name not in _TYPES for each in node.attribute):
            node.attribute.append(helper.make_attribute("output_datatype", int(TensorProto.DOUBLE)))
        if node.op_type == "Constant" and node.attribute[0].name in ("value_float", "value_floats"):
            stated = node.attribute[0]
            value = np.array(stated.f if stated.name == "value_float" else list(stated.floats), np.float64)
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))


def _widen_tensor(tensor: Any) -> None:
    if tensor.data_type in _FLOATS:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
