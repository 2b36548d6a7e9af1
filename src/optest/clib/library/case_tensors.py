"""Tensors of a case as C receives them, and the deviations that a case requests for its call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from optest.clib.library.attributes import BOUNDS, always, value_with_defaults, whole_limits
from optest.clib.library.layouts import Gap, outputs_of
from optest.clib.library.mapping_words import SAME, DtypeName
from optest.clib.library.operator_mapping import OperatorMapping
from optest.numerics import Array, numpy_dtype, round_to
from optest.registry import load_object
from optest.spec import DType, TensorSpec, TestCase, dtype
from optest.spec.tensors import dense


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``backend_config.ffi.call``: deviations of a call, which must be refused, except ``in_place``. Tensors are
    ``input:a`` or ``output:out``."""

    null: tuple[str, ...] = ()  # tensors, workspace or descriptor, NULL at the call; handle, NULL at creation
    null_descriptor: tuple[str, ...] = ()  # tensors whose descriptor is NULL
    workspace: Literal["short"] | None = None  # one byte less than the library requests
    alias: Mapping[str, str] = {}  # outputs placed in the memory of an input
    behind: int = 1  # elements between the first elements of the two
    in_place: Mapping[str, str] = {}  # outputs that are an input
    dtypes: Mapping[str, DtypeName] = {}  # wrong ones, of outputs
    shapes: Mapping[str, tuple[Annotated[int, msgspec.Meta(ge=0)], ...]] = {}  # of outputs

    def __bool__(self) -> bool:
        return self != NO_REQUEST

    @property
    def short_workspace(self) -> bool:
        return self.workspace == "short"

    @property
    def is_wrong(self) -> bool:
        return bool(self.null or self.null_descriptor or self.workspace or self.alias or self.dtypes or self.shapes)


NO_REQUEST = CallRequest()


OutputLayout = tuple[str, tuple[int, ...] | None, int]  # Name, strides and offset of an output, in elements.
Specs = dict[str, TensorSpec | None]


def specs_of_case(
    case: TestCase, entry: OperatorMapping, layouts: Sequence[OutputLayout], request: CallRequest
) -> Specs:
    """Return the specs by role; omitted inputs have no key. Raise Gap if the outputs or a layout are unknown.

    Add the inputs that the mapping creates: copies of one number (strides 0), and positions that it counts.
    """
    outputs = output_specs(case, entry, layouts, request)
    specs: Specs = {f"input:{arg.name}": arg.spec for arg in case.inputs}
    like = next(iter(outputs.values()))
    for name in entry.read.made_tensors:
        specs[f"input:{name}"] = TensorSpec(dtype=like.dtype, shape=like.shape, strides=(0,) * like.rank)
    # A wrong call without outputs gets no positions: with them, inputs that contradict each other may be legal.
    for name, counting in entry.arange.items() if case.outputs or case.expects_error is None else ():
        of = specs.get(f"input:{counting.of}")
        if f"input:{name}" not in specs and of is not None and -of.rank <= counting.dim < of.rank:
            specs[f"input:{name}"] = TensorSpec(dtype=dtype(counting.dtype), shape=(of.shape[counting.dim],))
    return {**specs, **{f"output:{name}": spec for name, spec in outputs.items()}}


def generate_inputs(case: TestCase, entry: OperatorMapping, specs: Mapping[str, TensorSpec | None]) -> dict[str, Array]:
    """Return the inputs that only C has: attributes as tensors of one number, positions for an omitted input."""
    arrays: dict[str, Array] = {}
    for name in entry.read.made_tensors:
        spec = specs[f"input:{name}"]
        assert spec is not None
        arrays[name] = np.broadcast_to(_scalar_array(value_with_defaults(case, entry, name), spec.dtype), spec.shape)
    present = {arg.name for arg in case.inputs}
    for name in entry.arange:
        spec = specs.get(f"input:{name}")
        if name not in present and spec is not None:
            arrays[name] = np.arange(spec.elements).astype(numpy_dtype(spec.dtype))
    return arrays


def _scalar_array(value: Any, kind: DType) -> Array:
    """Return a value as a 0-d array; ``lowest`` and ``highest`` become infinities or integer limits."""
    if kind.is_inexact:
        number = float(BOUNDS.get(value, value))
        return np.asarray(round_to(np.asarray(number), kind))
    low, high = whole_limits(kind)
    return np.asarray({"lowest": low, "highest": high}.get(value, value), numpy_dtype(kind))


def output_specs(
    case: TestCase, entry: OperatorMapping, layouts: Sequence[OutputLayout], request: CallRequest
) -> dict[str, TensorSpec]:
    """Return the outputs by name, with layouts and the request's dtypes and shapes; raise Gap if none is known."""
    specs = _outputs_of_c(case, entry)
    if not specs and case.expects_error is not None:
        specs = _outputs_of_wrong_call(case, entry)
    if not specs:
        raise Gap("the shapes of the outputs are unknown; set them under `shapes:`")
    for name, strides, offset in layouts:
        if name not in specs:
            raise Gap(f"the layout of {name} is set, but the case has no such output")
        specs[name] = TensorSpec(dtype=specs[name].dtype, shape=specs[name].shape, strides=strides, offset=offset)
    for key in dict.fromkeys((*request.dtypes, *request.shapes)):
        name = key.partition(":")[2]
        if name in specs:
            spec = specs[name]
            kind = dtype(request.dtypes[key]) if key in request.dtypes else spec.dtype
            specs[name] = TensorSpec(dtype=kind, shape=request.shapes.get(key, spec.shape))
    return specs


def _outputs_of_c(case: TestCase, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """Return the case's outputs by name, and further ones that C always writes."""
    outputs = outputs_of(case)
    c_names = [role.name for role in entry.read.roles if role.kind == "output"]
    if not outputs or not entry.always or all(name in outputs for name in c_names):
        return outputs
    return {**_inferred_by_name(case, always(case, entry)), **outputs}


def _outputs_of_wrong_call(case: TestCase, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """Return outputs for inputs without a result: like a started input, of the corrected call, or like the first."""
    like = {argument.name: dense(argument.spec.dtype, argument.spec.shape) for argument in case.inputs}
    outputs = [role.name for role in entry.read.roles if role.kind == "output"]
    like_first = {}
    for name in outputs:
        spec, dtypes = next(iter(like.values())), entry.dtypes_of.get(name, (SAME,))
        like_first[name] = spec if SAME in dtypes else replace(spec, dtype=dtype(dtypes[0]))
    started = {start.output: like[start.input] for start in entry.starts if start.input in like}
    if started:
        return {**like_first, **started}
    # The outputs must be valid, so they are inferred without the parts that may be at fault.
    optional = {x.name for x in case.descriptor.tensors.inputs if x.optional}
    defaults = {x.name: x.default for x in case.descriptor.attributes if not x.is_required}
    for attributes in ({}, defaults):
        for left_out in (set(), optional):
            inferred_outputs = _inferred_by_name(case, {**attributes, **always(case, entry)}, left_out)
            if inferred_outputs:
                return inferred_outputs
    return like_first


def _inferred_by_name(
    case: TestCase, attributes: Mapping[str, Any], left_out: Collection[str] = ()
) -> dict[str, TensorSpec]:
    """Return the outputs inferred with these attributes in place of the case's; empty if the inputs do not fit."""
    specs = {arg.name: arg.spec for arg in case.inputs if arg.name not in left_out}
    outputs = infer_outputs(replace(case, attributes={**case.attributes, **attributes}), specs) or ()
    return dict(zip(case.descriptor.tensors.output_names(len(outputs)) or (), outputs, strict=True))


def with_specs(case: TestCase, specs: Mapping[str, TensorSpec]) -> TestCase | None:
    """Return the case with other input specs and the inferred outputs; None if the operator does not support them."""
    inputs = tuple(replace(arg, spec=specs[arg.name]) for arg in case.inputs)
    outputs = (
        infer_outputs(case, specs) if case.descriptor.supports([tensor.spec.dtype.name for tensor in inputs]) else None
    )
    return None if outputs is None else replace(case, inputs=inputs, outputs=outputs)


def infer_outputs(case: TestCase, specs: Mapping[str, TensorSpec]) -> tuple[TensorSpec, ...] | None:
    """Return the output specs for inputs of these specs; None if they do not fit the operator."""
    infer: Any = case.descriptor.infer
    if infer is None:
        return None
    if isinstance(infer, str):
        infer = load_object(infer)
    names = [arg.name for arg in case.inputs if arg.name in specs]
    if not case.descriptor.tensors.is_variadic:
        names = [x.name for x in case.descriptor.tensors.inputs]
    try:
        return tuple(infer([specs.get(name) for name in names], case.attributes))
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return None  # inference functions, also users' own, reject inputs by any of these
