"""A call of an operator that can be asked in other layouts, dtypes and sizes: what samples are derived from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from optest.clib.library.case_tensors import inferred, with_specs
from optest.clib.library.layouts import outputs_of
from optest.clib.library.operator_mapping import OperatorMapping
from optest.memory.stride_patterns import Pattern, patterns
from optest.spec import ExpectedError, Sample, TensorSpec, TestCase, UnfitArguments, dtype

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
_POWERS = (256, 1024, 4096)
"""What widths of blocks divide, and pages hold."""
_ROWS, _COLUMNS = 61, 67
"""More than one block of 16, 32 or 64 in a dimension, and a remainder of each; fewer elements than threads want."""
_MILLIONS = (1 << 21) + 1
"""Elements: more than 16 bits, or one launch, count, and as float32 more than a stack holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCall:
    """A call: ``sample`` is the sample that it came from, ``base`` the case that the sample made.

    ``shapes`` are those of inputs and outputs by name, in their order, ``dtypes_of_inputs`` and ``places`` what they
    are asked in; ``config`` is its ``backend_config.ffi``.
    """

    sample: Mapping[str, Any]
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

    def case(self) -> dict[str, Any]:
        config = self._whole_config()
        return {
            **{key: value for key, value in self.sample.items() if key not in ("tags", "dtypes", "shapes")},
            "shapes": {name: self._shape(name) for name in self.inputs},
            "dtypes": list(self.dtypes_of_inputs.values()),
            **({"backend_config": {"ffi": config}} if config else {}),
        }

    def _whole_config(self) -> dict[str, Any]:
        laid = {name: _layout(place) for name, place in self.places.items() if name in self.outputs}
        return {**self.config, **({"outputs": laid} if laid else {})}

    def _shape(self, name: str) -> Any:
        place, shape = self.places.get(name), list(self.shapes[name])
        return shape if place is None else {"shape": shape, **_layout(place)}

    def planned(self) -> TestCase:
        """The case that a plan would make of it; outputs that do not follow from the inputs are those of the base.

        Raises:
            ValueError: for attributes or layouts that cannot be.
        """
        base, refusal = self.base, self.sample.get("expects_error")
        if "attributes" in self.sample:
            base = dataclasses.replace(base, attributes=base.descriptor.bind(self.sample["attributes"]))
        specs = self.input_specs()
        for name, place in self.places.items():
            if name in specs:
                specs[name] = dataclasses.replace(specs[name], strides=place.strides, offset=place.offset)
        outputs = inferred(base, specs)
        return dataclasses.replace(
            base,
            inputs=tuple(dataclasses.replace(each, spec=specs[each.name]) for each in base.inputs),
            outputs=outputs if outputs is not None else () if refusal else base.outputs,
            expects_error=ExpectedError(**refusal) if refusal else base.expects_error,
            backend_config={"ffi": {**base.backend_config.get("ffi", {}), **self._whole_config()}},
        )

    def can_be_called(self) -> bool:
        """Whether a function of the mapping can be told of it, in its layouts; also of what has to be refused."""
        try:
            return self.lack(self.planned()) is None
        except ValueError:
            return False

    def laid(self, places: Mapping[str, Pattern]) -> SampleCall:
        return dataclasses.replace(self, places={**self.places, **places})

    def configured(self, config: Mapping[str, Any]) -> SampleCall:
        return dataclasses.replace(self, config={**self.config, **config})

    def with_keys(self, **keys: Any) -> SampleCall:
        """With other keys of the sample, such as its generator."""
        return dataclasses.replace(self, sample={**self.sample, **keys})

    def with_dtypes(self, dtypes: Mapping[str, str]) -> SampleCall:
        return dataclasses.replace(self, dtypes_of_inputs={**self.dtypes_of_inputs, **dtypes})

    def of_dtype(self, name: str) -> SampleCall:
        """With another dtype for all tensors that share the first one's."""
        shared = next(iter(self.dtypes_of_inputs.values()), name)
        return self.with_dtypes({each: name for each, own in self.dtypes_of_inputs.items() if own == shared})

    def dtypes(self, entry: OperatorMapping) -> list[str]:
        """Those that the call can be asked in; float32 and its like first."""
        variants = {name for variant in self.base.descriptor.dtype_variants for name in variant}
        known = [name for name in (entry.dtypes or sorted(variants)) if self.of_dtype(name)._legal_case() is not None]
        return sorted(known, key=lambda name: name not in _FIRST_DTYPES) or [next(iter(self.dtypes_of_inputs.values()))]

    def input_specs(self) -> dict[str, TensorSpec]:
        """The inputs, dense."""
        dtypes = self.dtypes_of_inputs.items()
        return {name: TensorSpec(dtype=dtype(own), shape=self.shapes[name]) for name, own in dtypes}

    def fits(self) -> bool:
        """Whether the operator takes these shapes, dtypes and attributes."""
        return inferred(self.base, self.input_specs()) is not None

    def _legal_case(self) -> TestCase | None:
        """The case without layouts, None where operator or mapping does not take it."""
        case = with_specs(self.base, self.input_specs())
        return case if case is not None and self.lack(case) is None else None

    def _legal(self) -> SampleCall | None:
        """The call, dense, with outputs of the shapes that follow; None where operator or mapping does not take it."""
        case = self._legal_case()
        if case is None:
            return None
        given = {name: self.shapes[name] for name in self.inputs}
        return dataclasses.replace(self, shapes={**given, **_output_shapes(case)}, places={})

    def with_shapes(self, shapes: Mapping[str, Shape]) -> SampleCall | None:
        """The call with other shapes of its inputs, dense, None where they do not fit one another."""
        if _holds_data(self.sample.get("generator")):
            return None  # values that are written down have the shape that they have
        return dataclasses.replace(self, shapes={**self.shapes, **shapes})._legal()

    def with_attribute(self, name: str, value: Any) -> SampleCall | None:
        """The call with another value of an attribute, dense, None where operator or mapping does not take it."""
        attribute = self.base.descriptor.attribute(name)
        try:
            canonical = attribute.read(value)
        except UnfitArguments:
            return None
        own = {key: each for key, each in self.sample.get("attributes", {}).items() if key not in attribute.aliases}
        return self.with_keys(attributes=own)._with_attributes({name: value}, {name: canonical})._legal()

    def _with_attributes(self, stated: Mapping[str, Any], canonical: Mapping[str, Any]) -> SampleCall:
        return dataclasses.replace(
            self.with_keys(attributes={**self.sample.get("attributes", {}), **stated}),
            base=dataclasses.replace(self.base, attributes={**self.base.attributes, **canonical}),
        )

    def with_sizes(self, sizes: Mapping[int, int]) -> list[SampleCall]:
        """The call with some of its sizes replaced in all shapes and, where that alone does not fit, in attributes that
        list sizes; none where that does not fit either."""
        shapes = {name: tuple(sizes.get(size, size) for size in self.shapes[name]) for name in self.inputs}
        listed = {
            name: [sizes.get(each, each) for each in value]
            for name, value in self.base.attributes.items()
            if isinstance(value, (list, tuple)) and all(type(each) is int for each in value)
        }
        canonical = {name: tuple(value) for name, value in listed.items()}
        call = self.with_shapes(shapes) or self._with_attributes(listed, canonical).with_shapes(shapes)
        return [] if call is None else [call]

    def resized(self, size: int) -> list[SampleCall]:
        """The call with each of its sizes in turn replaced, wherever it stands; none where that is too large."""
        found = [call for old in self._sizes() if old != size for call in self.with_sizes({old: size})]
        return [each for each in found if _most_elements(each) <= _MOST_OF_RESIZED]

    def squared(self, size: int) -> list[SampleCall]:
        """The call with one size for everything."""
        return self.with_sizes(dict.fromkeys(self._sizes(), size))

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
        longest = {name: self.shapes[name] for name in self.inputs if len(self.shapes[name]) == most}
        found = (
            self.with_shapes({name: shape[dropped:] for name, shape in longest.items()}) for dropped in range(1, most)
        )
        return [call for call in found if call is not None]

    def grown(self, elements: int) -> list[SampleCall]:
        """The call with each of its sizes in turn so large that a tensor has at least so many elements."""
        found: list[SampleCall] = []
        for old in self._sizes():
            most = max(prod(shape) for shape in self.shapes.values() if old in shape or not shape) or 1
            size = -(-elements // most) * old | 1
            found += self.with_sizes({old: size}) or self.with_sizes({old: size + 1})
        return [each for each in found if _most_elements(each) <= _FAR_TOO_MANY * elements]

    def _sizes(self) -> list[int]:
        return list(dict.fromkeys(size for name in self.inputs for size in self.shapes[name] if size > 1))


def calls_from(own: Iterable[tuple[Sample, TestCase]], lack: Lack) -> list[SampleCall]:
    """A few legal calls that differ in what they pass: ranks, optional inputs and outputs; the simplest first."""
    found: dict[Any, SampleCall] = {}
    for sample, case in own:
        if not _is_plain(case) or lack(case) is not None:
            continue
        call = SampleCall(
            sample=sample.case,
            base=case,
            lack=lack,
            shapes={**{each.name: each.spec.shape for each in case.inputs}, **_output_shapes(case)},
            dtypes_of_inputs={each.name: each.spec.dtype.name for each in case.inputs},
        )
        kind = tuple((name, len(shape)) for name, shape in call.shapes.items())
        if "generator" in found.setdefault(kind, call).sample and "generator" not in call.sample:
            found[kind] = call  # whose values are not about one thing alone
    return list(found.values())[:_MOST_CALLS]


def powers_of_two(call: SampleCall) -> Iterator[SampleCall]:
    """Tensors of one dimension whose size is a power of two."""
    for flat in (call, *call.flattened()):
        if max(len(shape) for shape in flat.shapes.values()) == 1:
            for size in _POWERS:
                yield from flat.resized(size)
            return


def in_blocks(call: SampleCall) -> Iterator[SampleCall]:
    """Matrices of several blocks and a remainder, transposed and permuted, each tensor in turn and all of them."""
    for one in (call, *call.flattened()):
        shape = max(one.shapes.values(), key=len)
        if len(shape) < 2 or shape[-1] == shape[-2]:
            continue
        for grown in one.with_sizes({shape[-2]: _ROWS, shape[-1]: _COLUMNS}):
            if _most_elements(grown) > _MOST_ELEMENTS:
                continue
            yield grown
            every = ((name, each) for name, own in grown.shapes.items() for each in patterns(own))
            turned = {name: each for name, each in every if each.name == "transposed"}
            for name, place in turned.items():
                yield grown.laid({name: place})
            yield grown.laid(turned)


def large(call: SampleCall) -> list[SampleCall]:
    """Millions of elements, where every output element costs about the same: all tensors have one shape."""
    return call.grown(_MILLIONS)[:1] if len(set(call.shapes.values())) == 1 else []


def all_but_one(shape: Sequence[int], usual: Any, other: Any, at: int = -1) -> Any:
    """The usual value everywhere but in one place, nested like the shape."""
    values = np.full(shape, usual, dtype=object)
    values.flat[at] = other
    return values.tolist()


def _layout(place: Pattern) -> dict[str, Any]:
    return {"strides": list(place.strides), "offset": place.offset}


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


def _most_elements(call: SampleCall) -> int:
    return max(map(prod, call.shapes.values()))


def _output_shapes(case: TestCase) -> dict[str, Shape]:
    return {name: spec.shape for name, spec in outputs_of(case).items()}


def _holds_data(generator: Any) -> bool:
    if isinstance(generator, Mapping):
        return generator.get("fill") in ("data", "file") or any(_holds_data(each) for each in generator.values())
    return False
