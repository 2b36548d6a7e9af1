"""Conversion of cases to ONNX models of one node, with casts before it if the operator has another result dtype.

Sizes are symbolic, so that cases that differ only in sizes share a model, unless an attribute contains a size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from optest.backends.abilities import Program, ProgramNode
from optest.numerics import dtype_of, numpy_dtype
from optest.onnx.nodes import node_of
from optest.onnx.nodes.node import Differs, Filled, Node, OnnxCall, opset_of, schema_of
from optest.operators.onnx import SPELLINGS
from optest.spec import Call, DType, Fault, Reason, TensorSpec, TestCase, UnfitArguments, dtype

ELEMENT_TYPES: dict[str, int] = {
    "bool": TensorProto.BOOL,
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "bfloat16": TensorProto.BFLOAT16,
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "complex64": TensorProto.COMPLEX64,
    "complex128": TensorProto.COMPLEX128,
    **{
        f"{sign}int{size}": getattr(TensorProto, f"{sign}int{size}".upper())
        for sign in ("", "u")
        for size in (8, 16, 32, 64)
    },
}
"""ONNX's dtype numbers by optest's dtype names."""

DTYPE_NAMES = {number: name for name, number in ELEMENT_TYPES.items()}
# Runtimes that know the opset read this version, and slightly older ones do, too.
_IR_VERSION = 10
# Parts of the messages with which ONNX's shape inference rejects the dtype of an input.
_TYPE_ERRORS = ("has unsupported type", "has inconsistent type")


@dataclass(frozen=True, slots=True)
class Model:
    """A serialized model; ``feeds`` maps each input of the graph to the index among the case's inputs."""

    content: bytes
    op: str
    feeds: tuple[tuple[str, int], ...]
    outputs: tuple[str, ...]

    def fed(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs by name, as C-contiguous arrays."""
        return {name: np.asarray(inputs[index], order="C") for name, index in self.feeds}


def why_no_model(case: TestCase, sized: Mapping[str, int] | None = None) -> str | None:
    """Return why ONNX has no operator for the case, None if it has one."""
    # Shape inference rejects ranks and axes, too. If the case expects an error, the runtime has to reject them.
    try:
        model = model_of(case, sized)
    except (Differs, UnfitArguments) as error:
        return f"ONNX: {error}"
    problem = _inferred(model.content)[1]
    is_of_types = any(words in problem for words in _TYPE_ERRORS)
    return _problem_text(model.op, problem) if is_of_types or (problem and case.expects_error is None) else None


def model_of(case: TestCase, sized: Mapping[str, int] | None = None) -> Model:
    """Return the model of a case; for operators in ``sized``, inputs from that index on have fixed sizes.

    Raises:
        Differs, UnfitArguments: if ONNX has no such call.
    """
    make = node_of(case.descriptor)
    if make is None:
        raise Differs(f"ONNX has no operator {case.descriptor.name}")
    call = OnnxCall(case)
    node = make(call)
    stated = [each for each in node.attributes.values() if isinstance(each, DType)]
    narrow = next((each.name for each in (*case.dtypes, *stated) if each.bits == 4), None)
    if narrow is not None:
        raise Differs(f"tensors of {narrow} hold two elements in a byte, which is not supported here")
    # Attributes of nodes are float32, which suffices unless operands are float64.
    if any(each.name == "float64" for each in call.case.dtypes):
        for name in schema_of(node.op).attributes:
            value = node.attributes.get(name)
            if isinstance(value, float) and float(np.float32(value)) != value:
                raise Differs(f"{name} is a float32, which does not hold {value!r}")
    if not call.is_refused:
        meaning_of(node, call)
    return _Graph(call, node, sized or {}).model()


def checked(model: Model) -> bytes:
    """Return the serialized model with inferred types; unchanged if type inference rejects it."""
    return _inferred(model.content)[0]


def inferred_program(model: Model) -> Program:
    """Return the program of a model with inferred types.

    Raises:
        ValueError: if shape inference rejects the model.
        Fault: UNSUPPORTED if an output size remains unknown.
    """
    content, problem = _inferred(model.content)
    if problem:
        raise ValueError(_problem_text(model.op, problem))
    return program_of(content)


def program_of(content: bytes, *, is_optimized: bool = False) -> Program:
    """Return the graph of a serialized model as a Program; raise a Fault UNSUPPORTED if a size is unknown."""
    graph = onnx.load_from_string(content).graph
    specs = dict[str, TensorSpec]()
    for each in (*graph.input, *graph.output):
        type_ = each.type.tensor_type
        known = [int(size.dim_value) if size.HasField("dim_value") else None for size in type_.shape.dim]
        specs[each.name] = spec_of(DTYPE_NAMES[type_.elem_type], known if type_.HasField("shape") else [None])
    return Program(
        nodes=[ProgramNode(each.op_type, each.input, each.output, f"{each.attribute}") for each in graph.node],
        inputs={each.name: specs[each.name] for each in graph.input},
        outputs=[(each.name, specs[each.name]) for each in graph.output],
        constants={each.name: numpy_helper.to_array(each) for each in graph.initializer},
        is_optimized=is_optimized,
    )


def spec_of(dtype_name: str, shape: Sequence[object]) -> TensorSpec:
    """Return the spec of an output; raise Fault UNSUPPORTED if a size is not a number."""
    if not all(isinstance(size, int) for size in shape):
        raise Fault(Reason.UNSUPPORTED, "shape inference leaves a size of an output unknown")
    return TensorSpec(dtype=dtype(dtype_name), shape=tuple(shape))  # type: ignore[arg-type]


def meaning_of(node: Node, call: OnnxCall) -> Call | None:
    """Return the call that a plan reads from the node; None if plans do not read the operator from such a node.

    Raises:
        UnfitArguments: if ONNX defines the call differently, with the reason.
    """
    spelling, own = SPELLINGS.get(node.op), call.case.descriptor.name
    is_plain = node.within is None and not any(isinstance(each, Filled) for each in node.inputs)
    if spelling is None or own not in spelling.operators or not is_plain:
        return None
    indices = [index for index in node.inputs or range(len(call.specs)) if isinstance(index, int)]
    stated = {name: each.name if isinstance(each, DType) else each for name, each in node.attributes.items()}
    known = {
        each.name: each.default if stated.get(each.name) is None else each.read(stated[each.name])
        for each in spelling.attributes
    }
    return spelling.meaning([call.specs[index] for index in indices], known)


def _problem_text(op: str, problem: str) -> str:
    return f"ONNX's {op}: {problem.rpartition('): ')[2]}"


@lru_cache(maxsize=256)
def _inferred(content: bytes) -> tuple[bytes, str]:
    """Return the model with inferred types and ""; if inference rejects it, the model unchanged and the message."""
    try:
        inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(content), check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return content, str(error).strip()
    return inferred.SerializeToString(deterministic=True), ""


@dataclass
class _Graph:
    """Builder of a model: the node, its constants and the casts of its inputs."""

    call: OnnxCall
    node: Node
    sized: Mapping[str, int]
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    feeds: list[tuple[str, int]] = field(default_factory=list)

    def model(self) -> Model:
        schema, op = schema_of(self.node.op), self.node.op
        # Attributes of the case that are inputs of the ONNX node, with their index, become constants.
        attributes: dict[str, Any] = {}
        parameters: list[tuple[int, str, Any]] = []
        places = {each.name: place for place, each in enumerate(schema.inputs)}
        for name, value in self.node.attributes.items():
            if value is None:
                continue
            if name in schema.attributes:
                attributes[name] = ELEMENT_TYPES[value.name] if isinstance(value, DType) else value
            else:
                parameters.append((places[name], name, value))
        names = [self._input(each) for each in self.node.inputs or range(len(self.call.specs))]
        for place, name, value in sorted(parameters):
            names += [""] * (place - len(names) + 1)
            common, kind = self._common_dtype, np.dtype(np.int64)
            if schema.inputs[place].type_str == schema.inputs[0].type_str:
                kind = numpy_dtype(common)
                if common.is_integer and not common.min_int <= value <= common.max_int:
                    raise Differs(f"{name} has the dtype of the data, and {common} does not hold {value}")
            names[place] = self._constant(name, np.array(value).astype(kind))
        while names and not names[-1]:
            names.pop()
        outputs = [f"y{index}" for index in range(self.node.outputs)]
        self.nodes.append(helper.make_node(op, names, outputs, **attributes))
        graph = helper.make_graph(
            self.nodes,
            op,
            self.inputs,
            [onnx.ValueInfoProto(name=each) for each in outputs],
            initializer=self.constants,
        )
        opset = helper.make_opsetid("", opset_of(op))
        model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="optest")
        content = model.SerializeToString(deterministic=True)
        return Model(content=content, op=op, feeds=tuple(self.feeds), outputs=tuple(outputs))

    @property
    def _common_dtype(self) -> DType:
        return self.call.spec().dtype if self.node.within is None else dtype(self.node.within)

    def _input(self, given: int | Filled) -> str:
        """Add an input or a constant to the graph, with a cast if needed; return its name, "" for an omitted input."""
        if isinstance(given, Filled):
            values = np.full(given.shape, given.value).astype(numpy_dtype(self._common_dtype))
            return self._constant(f"filled{len(self.constants)}", values)
        spec = self.call.specs[given]
        if spec is None:
            return ""
        name = f"x{given}"
        type_, is_sized = ELEMENT_TYPES[spec.dtype.name], given >= self.sized.get(self.node.op, given + 1)
        sizes = list(spec.shape) if is_sized else [None] * spec.rank
        self.feeds.append((name, sum(self.call.has(place) for place in range(given))))
        self.inputs.append(helper.make_tensor_value_info(name, type_, sizes))
        if self.node.within is None or self.node.within == spec.dtype.name:
            return name
        wide = f"{name}_{self.node.within}"
        self.nodes.append(helper.make_node("Cast", [name], [wide], to=ELEMENT_TYPES[self.node.within]))
        return wide

    def _constant(self, name: str, values: np.ndarray[Any, Any]) -> str:
        type_ = ELEMENT_TYPES[dtype_of(values.dtype).name]
        self.constants.append(helper.make_tensor(name, type_, values.shape, values.tobytes(), raw=True))
        return name
