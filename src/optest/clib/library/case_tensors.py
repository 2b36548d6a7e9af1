"""The tensors of a case as C has them: those of the operator, others that optest makes, and outputs of wrong calls; and
what a case asks to be done otherwise in a call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from optest.clib.library.attributes import BOUNDS, always, value_with_defaults, whole_limits
from optest.clib.library.layouts import Gap, dense, outputs_of
from optest.clib.library.mapping_words import SAME, DtypeName
from optest.clib.library.operator_mapping import OperatorMapping
from optest.numerics import Array, numpy_dtype, round_to
from optest.registry import load_object
from optest.spec import DType, TensorSpec, TestCase, dtype


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``backend_config.ffi.call``; a tensor is ``input:a`` or ``output:out``, as in a mapping.

    ``null`` are the pointers that are NULL when the operator runs (tensors, ``workspace``, ``descriptor``), or, for
    ``handle``, when its descriptor is made; ``null_descriptor`` the tensors whose descriptor is. A ``short`` workspace
    has one byte less than the library asked for. ``alias`` lets an output begin ``behind`` elements behind the first
    element of an input, in the input's memory; ``in_place`` lets it be the input. ``dtypes`` and ``shapes`` describe an
    output as another one than follows from the inputs. All but ``in_place`` ask for a refusal.
    """

    null: tuple[str, ...] = ()
    null_descriptor: tuple[str, ...] = ()
    workspace: Literal["short"] | None = None
    alias: Mapping[str, str] = {}
    behind: int = 1
    in_place: Mapping[str, str] = {}
    dtypes: Mapping[str, DtypeName] = {}
    shapes: Mapping[str, tuple[Annotated[int, msgspec.Meta(ge=0)], ...]] = {}

    def __bool__(self) -> bool:
        return self != NO_REQUEST

    @property
    def short_workspace(self) -> bool:
        return self.workspace == "short"

    @property
    def is_wrong(self) -> bool:
        return bool(self.null or self.null_descriptor or self.workspace or self.alias or self.dtypes or self.shapes)


NO_REQUEST = CallRequest()


OutputLayout = tuple[str, tuple[int, ...] | None, int]
"""Name, strides and offset of an output, in elements."""
Specs = dict[str, TensorSpec | None]


def specs_of_case(
    case: TestCase, entry: OperatorMapping, layouts: Sequence[OutputLayout], request: CallRequest
) -> Specs:
    """The tensors by role (``input:a``), None for one that is left out; those that optest makes among them.

    Raises:
        Gap: where no output is known, or the layout of one is given that the case does not have.
    """
    outputs = output_specs(case, entry, layouts, request)
    specs: Specs = {f"input:{each.name}": each.spec for each in case.inputs}
    like = next(iter(outputs.values()))
    for name in entry.read.made_tensors:
        specs[f"input:{name}"] = TensorSpec(dtype=like.dtype, shape=like.shape, strides=(0,) * like.rank)
    # Inputs that do not fit one another may be legal beside positions that the case does not state.
    for name, counting in entry.arange.items() if case.outputs or case.expects_error is None else ():
        of = specs.get(f"input:{counting.of}")
        if f"input:{name}" not in specs and of is not None and -of.rank <= counting.dim < of.rank:
            specs[f"input:{name}"] = TensorSpec(dtype=dtype(counting.dtype), shape=(of.shape[counting.dim],))
    return {**specs, **{f"output:{name}": spec for name, spec in outputs.items()}}


def made_inputs(case: TestCase, entry: OperatorMapping, specs: Mapping[str, TensorSpec | None]) -> dict[str, Array]:
    """Tensors that C wants and the case does not have: attributes as tensors of one number, by strides of 0; and
    positions 0, 1, 2 … for an input that is left out."""
    made: dict[str, Array] = {}
    for name in entry.read.made_tensors:
        spec = specs[f"input:{name}"]
        assert spec is not None
        made[name] = np.broadcast_to(_filled(value_with_defaults(case, entry, name), spec.dtype), spec.shape)
    given = {each.name for each in case.inputs}
    for name in entry.arange:
        spec = specs.get(f"input:{name}")
        if name not in given and spec is not None:
            made[name] = np.arange(spec.elements).astype(numpy_dtype(spec.dtype))
    return made


def _filled(value: Any, kind: DType) -> Array:
    """A 0-d array; ``lowest`` and ``highest`` are the infinities, or the smallest and the largest integer."""
    if kind.is_inexact:
        number = float(BOUNDS.get(value, value))
        return np.asarray(round_to(np.asarray(number), kind))
    low, high = whole_limits(kind)
    return np.asarray({"lowest": low, "highest": high}.get(value, value), numpy_dtype(kind))


def output_specs(
    case: TestCase, entry: OperatorMapping, layouts: Sequence[OutputLayout], request: CallRequest
) -> dict[str, TensorSpec]:
    """The outputs by name: dense unless the case says otherwise, in another dtype or shape where it asks for that.

    Raises:
        Gap: where none is known.
    """
    specs = _outputs_of_c(case, entry)
    if not specs and case.expects_error is not None:
        specs = _outputs_of_a_wrong_call(case, entry)
    if not specs:
        raise Gap("the shapes of the outputs are not known; state them under `shapes:`")
    for name, strides, offset in layouts:
        if name not in specs:
            raise Gap(f"the layout of {name} is stated, which the case does not have")
        specs[name] = TensorSpec(dtype=specs[name].dtype, shape=specs[name].shape, strides=strides, offset=offset)
    for key in dict.fromkeys((*request.dtypes, *request.shapes)):
        name = key.partition(":")[2]
        if name in specs:
            own = specs[name]
            kind = dtype(request.dtypes[key]) if key in request.dtypes else own.dtype
            specs[name] = TensorSpec(dtype=kind, shape=request.shapes.get(key, own.shape))
    return specs


def _outputs_of_c(case: TestCase, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """Outputs by name: those of the case, and those that C has whatever the case's attributes say."""
    own = outputs_of(case)
    of_c = [role.name for role in entry.read.roles if role.kind == "output"]
    if not own or not entry.always or all(name in own for name in of_c):
        return own
    return {**_inferred_by_name(case, always(case, entry)), **own}


def _outputs_of_a_wrong_call(case: TestCase, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """Outputs where none follow from inputs that do not fit: one like the input that it starts as; those without the
    optional inputs, or with the attributes' defaults, so that nothing is wrong with them; else like the first input."""
    like = {argument.name: argument.spec for argument in case.inputs}
    outputs = [role.name for role in entry.read.roles if role.kind == "output"]
    like_first = {name: _with_own_dtype(name, dense(next(iter(like.values()))), entry) for name in outputs}
    started = {start.output: dense(like[start.input]) for start in entry.starts if start.input in like}
    if started:
        return {**like_first, **started}
    optional = {each.name for each in case.descriptor.tensors.inputs if each.optional}
    defaults = {each.name: each.default for each in case.descriptor.attributes if not each.is_required}
    for attributes in ({}, defaults):
        for left_out in (set(), optional):
            found = _inferred_by_name(case, {**attributes, **always(case, entry)}, left_out)
            if found:
                return found
    return like_first


def _with_own_dtype(tensor: str, spec: TensorSpec, entry: OperatorMapping) -> TensorSpec:
    """With the dtype that the mapping says the tensor has whatever the others have."""
    own = entry.dtypes_of.get(tensor, (SAME,))
    return spec if SAME in own else replace(spec, dtype=dtype(own[0]))


def _inferred_by_name(
    case: TestCase, attributes: Mapping[str, Any], left_out: Collection[str] = ()
) -> dict[str, TensorSpec]:
    """The outputs that follow from the inputs with these attributes in place of the case's; none where they do not."""
    specs = {each.name: each.spec for each in case.inputs if each.name not in left_out}
    found = inferred(replace(case, attributes={**case.attributes, **attributes}), specs) or ()
    return dict(zip(case.descriptor.tensors.output_names(len(found)) or (), found, strict=True))


def with_specs(case: TestCase, specs: Mapping[str, TensorSpec]) -> TestCase | None:
    """The case with other inputs and the outputs that follow; None where the operator does not take them."""
    inputs = tuple(replace(each, spec=specs[each.name]) for each in case.inputs)
    outputs = inferred(case, specs) if case.descriptor.admits([each.spec.dtype.name for each in inputs]) else None
    return None if outputs is None else replace(case, inputs=inputs, outputs=outputs)


def inferred(case: TestCase, specs: Mapping[str, TensorSpec]) -> tuple[TensorSpec, ...] | None:
    """The outputs for inputs of these specs, None where they do not fit the operator."""
    infer: Any = case.descriptor.infer
    if infer is None:
        return None
    if isinstance(infer, str):
        infer = load_object(infer)
    names = [each.name for each in case.inputs if each.name in specs]
    if not case.descriptor.tensors.is_variadic:
        names = [each.name for each in case.descriptor.tensors.inputs]
    try:
        return tuple(infer([specs.get(name) for name in names], case.attributes))
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return None
