"""Operator calls that can be varied in layouts, dtypes and sizes, as the base of derived samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from optest.clib.library.case_tensors import infer_outputs, with_specs
from optest.clib.library.layouts import outputs_of
from optest.clib.library.operator_mapping import OperatorMapping
from optest.memory.stride_patterns import Pattern, patterns
from optest.spec import ExpectedError, Sample, TensorSpec, TestCase, UnfitArguments, dtype

Shape = tuple[int, ...]
Lack = Callable[[TestCase], str | None]

_MOST_CALLS = 4
# Sizes of added leading dimensions: few elements, different sizes, and some of 1, whose stride must be ignored.
_FRONT = (2, 3, 1, 2, 1, 1, 1, 1)
_MOST_ELEMENTS = 4_096
_FAR_TOO_MANY = 8
_MOST_OF_RESIZED = 1 << 20  # Elements: a size that occurs in several dimensions of one shape grows in all of them.
_FIRST_DTYPES = ("float32", "float16", "bfloat16", "float64")
_POWERS = (256, 1024, 4096)  # Multiples of block widths, and divisors of page sizes.
_ROWS, _COLUMNS = 61, 67  # Several blocks of 16, 32 or 64 per dimension with a remainder; too few elements for threads.
# Elements: more than 16-bit counters or one launch reach, and, as float32, more than a stack holds.
_MILLIONS = (1 << 21) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCall:
    """A call that can be varied, with its original sample."""

    sample: Mapping[str, Any]
    base: TestCase  # case of the sample
    lack: Lack  # returns why a case cannot be called
    shapes: Mapping[str, Shape]  # of inputs, then of outputs
    dtypes_of_inputs: Mapping[str, str]
    layouts: Mapping[str, Pattern] = field(default_factory=dict)  # layouts, by tensor
    config: Mapping[str, Any] = field(default_factory=dict)  # backend_config.ffi

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.dtypes_of_inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.shapes if name not in self.dtypes_of_inputs)

    def case(self) -> dict[str, Any]:
        """Return the call as the keys of a plan's case."""
        config = self._full_config()
        return {
            **{key: value for key, value in self.sample.items() if key not in ("tags", "dtypes", "shapes")},
            "shapes": {name: self._shape(name) for name in self.inputs},
            "dtypes": list(self.dtypes_of_inputs.values()),
            **({"backend_config": {"ffi": config}} if config else {}),
        }

    def _full_config(self) -> dict[str, Any]:
        laid = {name: _layout_keys(place) for name, place in self.layouts.items() if name in self.outputs}
        return {**self.config, **({"outputs": laid} if laid else {})}

    def _shape(self, name: str) -> Any:
        place, shape = self.layouts.get(name), list(self.shapes[name])
        return shape if place is None else {"shape": shape, **_layout_keys(place)}

    def planned(self) -> TestCase:
        """Return the test case that a plan creates; raise ValueError for invalid attributes or layouts."""
        base, refusal = self.base, self.sample.get("expects_error")
        if "attributes" in self.sample:
            base = dataclasses.replace(base, attributes=base.descriptor.bind(self.sample["attributes"]))
        specs = self.input_specs()
        for name, place in self.layouts.items():
            if name in specs:
                specs[name] = dataclasses.replace(specs[name], strides=place.strides, offset=place.offset)
        outputs = infer_outputs(base, specs)
        return dataclasses.replace(
            base,
            inputs=tuple(dataclasses.replace(arg, spec=specs[arg.name]) for arg in base.inputs),
            outputs=outputs if outputs is not None else () if refusal else base.outputs,
            expects_error=ExpectedError(**refusal) if refusal else base.expects_error,
            backend_config={"ffi": {**base.backend_config.get("ffi", {}), **self._full_config()}},
        )

    def can_be_called(self) -> bool:
        """Return whether a function of the mapping can express the call with its layouts."""
        try:
            return self.lack(self.planned()) is None
        except ValueError:
            return False

    def laid(self, places: Mapping[str, Pattern]) -> SampleCall:
        return dataclasses.replace(self, layouts={**self.layouts, **places})

    def configured(self, config: Mapping[str, Any]) -> SampleCall:
        return dataclasses.replace(self, config={**self.config, **config})

    def with_keys(self, **keys: Any) -> SampleCall:
        """Return the call with other keys of the sample, such as its generator."""
        return dataclasses.replace(self, sample={**self.sample, **keys})

    def with_dtypes(self, dtypes: Mapping[str, str]) -> SampleCall:
        return dataclasses.replace(self, dtypes_of_inputs={**self.dtypes_of_inputs, **dtypes})

    def of_dtype(self, name: str) -> SampleCall:
        """Return the call with another dtype for all inputs that share the first one's."""
        shared = next(iter(self.dtypes_of_inputs.values()), name)
        return self.with_dtypes(
            {tensor: name for tensor, current in self.dtypes_of_inputs.items() if current == shared}
        )

    def dtypes(self, entry: OperatorMapping) -> list[str]:
        """Return the supported dtypes of the call, common floating-point types first; at least its own."""
        variants = {name for variant in self.base.descriptor.dtype_variants for name in variant}
        known = [name for name in (entry.dtypes or sorted(variants)) if self.of_dtype(name)._legal_case() is not None]
        return sorted(known, key=lambda name: name not in _FIRST_DTYPES) or [next(iter(self.dtypes_of_inputs.values()))]

    def input_specs(self) -> dict[str, TensorSpec]:
        """Return dense specs of the inputs by name."""
        dtypes = self.dtypes_of_inputs.items()
        return {name: TensorSpec(dtype=dtype(kind), shape=self.shapes[name]) for name, kind in dtypes}

    def fits(self) -> bool:
        """Return whether the operator accepts these shapes, dtypes and attributes."""
        return infer_outputs(self.base, self.input_specs()) is not None

    def _legal_case(self) -> TestCase | None:
        """Return the case without layouts; None if operator or mapping rejects it."""
        case = with_specs(self.base, self.input_specs())
        return case if case is not None and self.lack(case) is None else None

    def _if_legal(self) -> SampleCall | None:
        """Return the dense call with inferred output shapes; None if operator or mapping rejects it."""
        case = self._legal_case()
        if case is None:
            return None
        inputs = {name: self.shapes[name] for name in self.inputs}
        return dataclasses.replace(self, shapes={**inputs, **_shapes_of_outputs(case)}, layouts={})

    def with_shapes(self, shapes: Mapping[str, Shape]) -> SampleCall | None:
        """Return the dense call with other input shapes; None if they or explicit data do not fit."""
        if _holds_data(self.sample.get("generator")):
            return None  # explicit values have a fixed shape
        return dataclasses.replace(self, shapes={**self.shapes, **shapes})._if_legal()

    def with_attribute(self, name: str, value: Any) -> SampleCall | None:
        """Return the dense call with another value of an attribute; None if operator or mapping rejects it."""
        attribute = self.base.descriptor.attribute(name)
        try:
            canonical = attribute.read(value)
        except UnfitArguments:
            return None
        own = {key: x for key, x in self.sample.get("attributes", {}).items() if key not in attribute.aliases}
        return self.with_keys(attributes=own)._with_attributes({name: value}, {name: canonical})._if_legal()

    def _with_attributes(self, written: Mapping[str, Any], canonical: Mapping[str, Any]) -> SampleCall:
        return dataclasses.replace(
            self.with_keys(attributes={**self.sample.get("attributes", {}), **written}),
            base=dataclasses.replace(self.base, attributes={**self.base.attributes, **canonical}),
        )

    def with_sizes(self, sizes: Mapping[int, int]) -> list[SampleCall]:
        """Return the call with sizes replaced in shapes, and in attributes if needed; empty if nothing fits."""
        shapes = {name: tuple(sizes.get(size, size) for size in self.shapes[name]) for name in self.inputs}
        listed = {
            name: [sizes.get(x, x) for x in value]
            for name, value in self.base.attributes.items()
            if isinstance(value, (list, tuple)) and all(type(x) is int for x in value)
        }
        canonical = {name: tuple(value) for name, value in listed.items()}
        call = self.with_shapes(shapes) or self._with_attributes(listed, canonical).with_shapes(shapes)
        return [] if call is None else [call]

    def resized(self, size: int) -> list[SampleCall]:
        """Return the calls with one size above 1 replaced everywhere; omit calls that do not fit or are too large."""
        calls = [call for old in self._sizes() if old != size for call in self.with_sizes({old: size})]
        return [x for x in calls if _most_elements(x) <= _MOST_OF_RESIZED]

    def squared(self, size: int) -> list[SampleCall]:
        """Return the call with ``size`` in place of every size above 1; empty if that does not fit."""
        return self.with_sizes(dict.fromkeys(self._sizes(), size))

    def deepened(self, rank: int) -> list[SampleCall]:
        """Return the call with leading dimensions added up to ``rank``; empty if that does not fit."""
        most = max((len(self.shapes[name]) for name in self.inputs), default=0)
        front = _FRONT[: max(0, rank - most)]
        shapes = {name: (*front, *self.shapes[name]) for name in self.inputs if len(self.shapes[name]) == most}
        call = self.with_shapes(shapes) if front else None
        return [] if call is None else [call]

    def flattened(self) -> list[SampleCall]:
        """Return the calls with one or more leading dimensions removed; omit those that do not fit."""
        most = max((len(self.shapes[name]) for name in self.inputs), default=0)
        longest = {name: self.shapes[name] for name in self.inputs if len(self.shapes[name]) == most}
        flat = ({name: shape[dropped:] for name, shape in longest.items()} for dropped in range(1, most))
        return [call for call in map(self.with_shapes, flat) if call is not None]

    def grown(self, elements: int) -> list[SampleCall]:
        """Return the calls with one size enlarged until a tensor has at least ``elements`` elements."""
        calls: list[SampleCall] = []
        for old in self._sizes():
            most = max(prod(shape) for shape in self.shapes.values() if old in shape or not shape) or 1
            size = -(-elements // most) * old | 1  # odd, so that blocks leave a remainder
            calls += self.with_sizes({old: size}) or self.with_sizes({old: size + 1})
        return [x for x in calls if _most_elements(x) <= _FAR_TOO_MANY * elements]

    def _sizes(self) -> list[int]:
        return list(dict.fromkeys(size for name in self.inputs for size in self.shapes[name] if size > 1))


def calls_from(samples: Iterable[tuple[Sample, TestCase]], lack: Lack) -> list[SampleCall]:
    """Return up to 4 legal calls that differ in ranks or in optional tensors; prefer samples without a generator."""
    by_ranks: dict[Any, SampleCall] = {}
    for sample, case in samples:
        if not _suits_variation(case) or lack(case) is not None:
            continue
        call = SampleCall(
            sample=sample.case,
            base=case,
            lack=lack,
            shapes={**{arg.name: arg.spec.shape for arg in case.inputs}, **_shapes_of_outputs(case)},
            dtypes_of_inputs={arg.name: arg.spec.dtype.name for arg in case.inputs},
        )
        ranks = tuple((name, len(shape)) for name, shape in call.shapes.items())
        if "generator" in by_ranks.setdefault(ranks, call).sample and "generator" not in call.sample:
            by_ranks[ranks] = call  # its values test no special property
    return list(by_ranks.values())[:_MOST_CALLS]


def powers_of_two(call: SampleCall) -> Iterator[SampleCall]:
    """Yield calls on one-dimensional tensors whose size is a power of two."""
    for flat in (call, *call.flattened()):
        if max(len(shape) for shape in flat.shapes.values()) == 1:
            for size in _POWERS:
                yield from flat.resized(size)
            return


def in_blocks(call: SampleCall) -> Iterator[SampleCall]:
    """Yield calls on matrices of several blocks and a remainder, dense and transposed: each tensor, then all."""
    for base_call in (call, *call.flattened()):
        shape = max(base_call.shapes.values(), key=len)
        if len(shape) < 2 or shape[-1] == shape[-2]:
            continue
        for grown in base_call.with_sizes({shape[-2]: _ROWS, shape[-1]: _COLUMNS}):
            if _most_elements(grown) > _MOST_ELEMENTS:
                continue
            yield grown
            layouts = ((name, pattern) for name, sizes in grown.shapes.items() for pattern in patterns(sizes))
            turned = {name: x for name, x in layouts if x.name == "transposed"}
            for name, place in turned.items():
                yield grown.laid({name: place})
            yield grown.laid(turned)


def large(call: SampleCall) -> list[SampleCall]:
    """Return the call with millions of elements, in a list; empty unless all tensors have one shape."""
    return call.grown(_MILLIONS)[:1] if len(set(call.shapes.values())) == 1 else []


def all_but_one(shape: Sequence[int], usual: Any, other: Any, at: int = -1) -> Any:
    """Return nested lists of ``shape``: ``usual`` everywhere except for ``other`` at flat index ``at``."""
    values = np.full(shape, usual, dtype=object)
    values.flat[at] = other
    return values.tolist()


def _layout_keys(place: Pattern) -> dict[str, Any]:
    return {"strides": list(place.strides), "offset": place.offset}


def _suits_variation(case: TestCase) -> bool:
    """Return whether a case suits a sample call: no expected error, dense, small, and one input with sizes above 1."""
    shapes = [arg.spec.shape for arg in case.inputs]
    return (
        case.expects_error is None
        and bool(case.outputs)
        and any(shapes)
        and all(arg.spec.is_dense for arg in case.inputs)
        and all(0 < prod(shape) <= _MOST_ELEMENTS for shape in (*shapes, *(x.shape for x in case.outputs)))
        and any(min(shape) > 1 for shape in shapes if shape)
    )


def _most_elements(call: SampleCall) -> int:
    return max(map(prod, call.shapes.values()))


def _shapes_of_outputs(case: TestCase) -> dict[str, Shape]:
    return {name: spec.shape for name, spec in outputs_of(case).items()}


def _holds_data(generator: Any) -> bool:
    """Return whether a generator contains explicit data or a file."""
    if isinstance(generator, Mapping):
        return generator.get("fill") in ("data", "file") or any(_holds_data(x) for x in generator.values())
    return False
