"""A call of an operator that can be asked in other layouts, dtypes and sizes: what samples are derived from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.stride_patterns import Pattern
from optest.registry import load_object
from optest.spec import Sample, TensorSpec, TestCase, UnfitArguments, dtype

__all__ = ["SampleCall", "Shape", "calls_from", "inferred"]

Shape = tuple[int, ...]
Lack = Callable[[TestCase], str | None]

_MOST_CALLS = 4
_FRONT = (2, 3, 1, 2, 1, 1, 1, 1)
"""Sizes of dimensions in front of others: few elements, not all alike, and some that nobody may step through."""
_MOST_ELEMENTS = 4_096
_FAR_TOO_MANY = 8
_MOST_OF_RESIZED = 1 << 20
"""Elements: a size that stands in several dimensions of one shape grows in all of them."""
_FIRST_DTYPES = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCall:
    """A legal call: ``stated`` is the sample that it came from, ``base`` the case that the sample made.

    ``shapes`` are those of inputs and outputs by name, in their order, ``dtypes_of_inputs`` and ``places`` what they
    are asked in; ``config`` is its ``backend_config.ffi``.
    """

    stated: Mapping[str, Any]
    base: TestCase
    lack: Lack
    shapes: Mapping[str, Shape]
    dtypes_of_inputs: Mapping[str, str]
    places: Mapping[str, Pattern] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.dtypes_of_inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.shapes if name not in self.dtypes_of_inputs)

    def case(self, **further: Any) -> dict[str, Any]:
        """The call as a case of a plan."""
        config = dict(self.config)
        laid = {name: place for name, place in self.places.items() if name in self.outputs}
        if laid:
            config["outputs"] = {
                name: {"strides": list(each.strides), "offset": each.offset} for name, each in laid.items()
            }
        made = {
            **{key: value for key, value in self.stated.items() if key not in ("tags", "dtypes", "shapes")},
            "shapes": {name: self._shape(name) for name in self.inputs},
            "dtypes": list(self.dtypes_of_inputs.values()),
            **further,
        }
        return {**made, "backend_config": {"ffi": config}} if config else made

    def _shape(self, name: str) -> Any:
        place = self.places.get(name)
        shape = list(self.shapes[name])
        return shape if place is None else {"shape": shape, "strides": list(place.strides), "offset": place.offset}

    def laid(self, places: Mapping[str, Pattern]) -> SampleCall:
        return dataclasses.replace(self, places={**self.places, **places})

    def configured(self, config: Mapping[str, Any]) -> SampleCall:
        return dataclasses.replace(self, config={**self.config, **config})

    def of_dtype(self, name: str) -> SampleCall:
        """With another dtype for all tensors that share the first one's."""
        shared = next(iter(self.dtypes_of_inputs.values()), name)
        changed = {each: name if own == shared else own for each, own in self.dtypes_of_inputs.items()}
        return dataclasses.replace(self, dtypes_of_inputs=changed)

    def dtypes(self, entry: OperatorMapping) -> list[str]:
        """Those that the call can be asked in; float32 and its like first."""
        variants = {name for variant in self.base.descriptor.dtype_variants for name in variant}
        known = [name for name in (entry.dtypes or sorted(variants)) if self.of_dtype(name).is_legal()]
        return sorted(known, key=lambda name: name not in _FIRST_DTYPES) or [next(iter(self.dtypes_of_inputs.values()))]

    def is_legal(self) -> bool:
        """Whether operator and mapping take it."""
        return self.test_case() is not None

    def test_case(self) -> TestCase | None:
        """The case without layouts, None where it is not legal."""
        if not self.base.descriptor.admits(tuple(self.dtypes_of_inputs.values())):
            return None
        specs = {
            name: TensorSpec(dtype=dtype(own), shape=self.shapes[name]) for name, own in self.dtypes_of_inputs.items()
        }
        outputs = inferred(self.base, specs)
        if outputs is None:
            return None
        arguments = tuple(dataclasses.replace(each, spec=specs[each.name]) for each in self.base.inputs)
        case = dataclasses.replace(self.base, inputs=arguments, outputs=outputs)
        return case if self.lack(case) is None else None

    def input_specs(self) -> dict[str, TensorSpec]:
        """The inputs, dense."""
        dtypes = self.dtypes_of_inputs.items()
        return {name: TensorSpec(dtype=dtype(own), shape=self.shapes[name]) for name, own in dtypes}

    def with_shapes(self, shapes: Mapping[str, Shape]) -> SampleCall | None:
        """The call with other shapes of its inputs, dense, None where they do not fit one another."""
        if _holds_data(self.stated.get("generator")):
            return None  # values that are written down have the shape that they have
        given = {name: shapes.get(name, self.shapes[name]) for name in self.inputs}
        call = dataclasses.replace(self, shapes={**given, **dict.fromkeys(self.outputs, ())}, places={})
        case = call.test_case()
        return None if case is None else dataclasses.replace(call, shapes={**given, **_output_shapes(case)})

    def with_attribute(self, name: str, value: Any) -> SampleCall | None:
        """The call with another value of an attribute, dense, None where operator or mapping does not take it."""
        attribute = next(each for each in self.base.descriptor.attributes if each.name == name)
        try:
            canonical = attribute.read(value)
        except UnfitArguments:
            return None
        stated = {key: own for key, own in self.stated.get("attributes", {}).items() if key not in attribute.aliases}
        call = dataclasses.replace(
            self,
            stated={**self.stated, "attributes": {**stated, name: value}},
            base=dataclasses.replace(self.base, attributes={**self.base.attributes, name: canonical}),
            places={},
        )
        case = call.test_case()
        if case is None:
            return None
        given = {each: self.shapes[each] for each in self.inputs}
        return dataclasses.replace(call, shapes={**given, **_output_shapes(case)})

    def resized(self, size: int) -> list[SampleCall]:
        """The call with each of its sizes in turn replaced, wherever it stands; none where that is too large."""
        found = [self._replaced({old: size}) for old in self._sizes() if old != size]
        return [each for each in found if each is not None and max(map(prod, each.shapes.values())) <= _MOST_OF_RESIZED]

    def with_sizes(self, sizes: Mapping[int, int]) -> list[SampleCall]:
        """The call with several of its sizes replaced at once; none where that does not fit."""
        call = self._replaced(sizes)
        return [] if call is None else [call]

    def squared(self, size: int) -> list[SampleCall]:
        """The call with one size for everything; none where that does not fit."""
        call = self._replaced(dict.fromkeys(self._sizes(), size))
        return [] if call is None else [call]

    def deepened(self, rank: int) -> list[SampleCall]:
        """The call with so many dimensions, the further ones in front; none where that does not fit."""
        most = max((len(self.shapes[name]) for name in self.inputs), default=0)
        front = _FRONT[: max(0, rank - most)]
        shapes = {name: (*front, *self.shapes[name]) for name in self.inputs if len(self.shapes[name]) == most}
        call = self.with_shapes(shapes) if front else None
        return [] if call is None else [call]

    def flattened(self) -> list[SampleCall]:
        """The call with fewer dimensions, those in front left out; none where that does not fit."""
        most = max((len(self.shapes[name]) for name in self.inputs), default=0)
        found = []
        for dropped in range(1, most):
            shapes = {name: shape[dropped:] for name, shape in self.shapes.items() if len(shape) == most}
            found.append(self.with_shapes({name: shape for name, shape in shapes.items() if name in self.inputs}))
        return [call for call in found if call is not None]

    def grown(self, elements: int) -> list[SampleCall]:
        """The call with each of its sizes in turn so large that a tensor has at least so many elements."""
        found = []
        for old in self._sizes():
            most = max(prod(shape) for shape in self.shapes.values() if old in shape or not shape) or 1
            wanted = -(-elements // most) * old | 1
            call = self._replaced({old: wanted}) or self._replaced({old: wanted + 1})
            if call is not None and max(map(prod, call.shapes.values())) <= _FAR_TOO_MANY * elements:
                found.append(call)
        return found

    def _sizes(self) -> list[int]:
        """The sizes above 1, each once."""
        return list(dict.fromkeys(size for name in self.inputs for size in self.shapes[name] if size > 1))

    def _replaced(self, sizes: Mapping[int, int]) -> SampleCall | None:
        """The sizes replaced in all shapes and, where that alone does not fit, in attributes that list sizes."""
        shapes = {name: tuple(sizes.get(size, size) for size in self.shapes[name]) for name in self.inputs}
        return self.with_shapes(shapes) or self._with_sizes_in_attributes(sizes).with_shapes(shapes)

    def _with_sizes_in_attributes(self, sizes: Mapping[int, int]) -> SampleCall:
        changed = {
            name: [sizes.get(each, each) for each in value]
            for name, value in self.base.attributes.items()
            if isinstance(value, (list, tuple)) and all(type(each) is int for each in value)
        }
        return dataclasses.replace(
            self,
            stated={**self.stated, "attributes": {**self.stated.get("attributes", {}), **changed}},
            base=dataclasses.replace(
                self.base,
                attributes={**self.base.attributes, **{name: tuple(value) for name, value in changed.items()}},
            ),
        )


def calls_from(own: Iterable[tuple[Sample, TestCase]], lack: Lack) -> list[SampleCall]:
    """A few legal calls that differ in what they pass: ranks, optional inputs and outputs; the simplest first."""
    found: dict[Any, SampleCall] = {}
    for sample, case in own:
        if not _is_plain(case) or lack(case) is not None:
            continue
        call = SampleCall(
            stated=sample.case,
            base=case,
            lack=lack,
            shapes={**{each.name: each.spec.shape for each in case.inputs}, **_output_shapes(case)},
            dtypes_of_inputs={each.name: each.spec.dtype.name for each in case.inputs},
        )
        kind = tuple((name, len(shape)) for name, shape in call.shapes.items())
        if "generator" in found.setdefault(kind, call).stated and "generator" not in call.stated:
            found[kind] = call  # whose values are not about one thing alone
    return list(found.values())[:_MOST_CALLS]


def _is_plain(case: TestCase) -> bool:
    """Dense, small, nothing empty, no 0-d tensors alone, and well."""
    shapes = [each.spec.shape for each in case.inputs]
    return (
        case.expects_error is None
        and bool(case.outputs)
        and any(shapes)
        and all(each.spec.is_dense for each in case.inputs)
        and all(0 < prod(shape) <= _MOST_ELEMENTS for shape in (*shapes, *(each.shape for each in case.outputs)))
        and any(min(shape) > 1 for shape in shapes if shape)
    )


def _output_shapes(case: TestCase) -> dict[str, Shape]:
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    return {name: spec.shape for name, spec in zip(names, case.outputs, strict=True)}


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


def _holds_data(generator: Any) -> bool:
    if isinstance(generator, Mapping):
        return generator.get("fill") in ("data", "file") or any(_holds_data(each) for each in generator.values())
    return False
