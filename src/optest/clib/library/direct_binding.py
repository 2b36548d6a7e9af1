"""Which function answers a case, and with which sizes, increments and leading dimensions; nothing is called here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optest.clib.library.direct import LAST, DirectCall
from optest.clib.library.direct_arguments import Argument, ArrayForm
from optest.clib.library.layouts import Axis, Gap, Matrix, Order, axes_of, increment_of, matrix_of
from optest.clib.library.limits import SAME
from optest.spec import TensorSpec, contiguous_strides, dtype

__all__ = ["COMPUTED", "BoundCase", "bind_case", "broadcast_specs"]

Specs = Mapping[str, TensorSpec | None]
"""By role: ``input:a``, ``output:out``; None for an input that is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCase:
    """A function for one case. ``values`` are integers, lists of them and the names of constants, by argument;
    ``dtype`` is the one by which it was chosen.

    ``behind`` says for each tensor by role how many bytes behind element [0, 0, …] the pointer points: below 0 for a
    vector that is walked backwards and named by its lowest address.
    """

    entry: DirectCall
    function: str
    dtype: str
    values: Mapping[Argument, int | str | tuple[int, ...]]
    behind: Mapping[str, int]


def bind_case(
    alternatives: Sequence[DirectCall],
    specs: Specs,
    attributes: Mapping[str, Any],
    *,
    from_lowest: bool,
    dtypes: Mapping[str, str] | None = None,
    is_wrong: bool = False,
) -> BoundCase:
    """The first of the alternatives that can say what these tensors are.

    ``dtypes`` are the headers' names of them, for a function that is told; ``is_wrong`` lets tensors of which the dtype
    is told have any, since the call has to be refused.

    Raises:
        Gap: why none can, told of the one that came nearest.
    """
    reasons: list[tuple[int, str]] = []
    for entry in alternatives:
        binding = _Binding(entry, specs, attributes, from_lowest=from_lowest, constants=dtypes or {}, is_wrong=is_wrong)
        try:
            return binding.bound()
        except Gap as gap:
            reasons.append((binding.step, str(gap)))
    raise Gap(max(reasons, key=lambda each: each[0])[1])


class _Binding:
    """One attempt; ``step`` tells how far it came."""

    def __init__(
        self,
        entry: DirectCall,
        specs: Specs,
        attributes: Mapping[str, Any],
        *,
        from_lowest: bool,
        constants: Mapping[str, str],
        is_wrong: bool,
    ) -> None:
        self.entry = entry
        self.step = 0
        self._attributes = attributes
        self._from_lowest = from_lowest
        self._constants = constants
        self._is_wrong = is_wrong
        self._function = self._dtype = ""
        self._specs = broadcast_specs(entry, specs)
        self._axes: dict[str, tuple[Axis, ...]] = {}
        self._matrices: dict[str, Matrix] = {}

    def bound(self) -> BoundCase:
        steps = (self._require_inputs, self._require_attributes, self._choose, self._measure, self._lay_out)
        for step in steps:
            step()
            self.step += 1
        arguments = tuple(dict.fromkeys(each for each in self.entry.told() if not self._is_left_out(each)))
        return BoundCase(
            entry=self.entry,
            function=self._function,
            dtype=self._dtype,
            values={each: self._value(each) for each in arguments if each.kind in COMPUTED},
            behind={each.key: self._behind(each.name) for each in arguments if each.kind in ("input", "output")},
        )

    def _is_left_out(self, argument: Argument) -> bool:
        """Whether it says something of a tensor that the case leaves out and C does without: nothing is made of it."""
        is_made = argument.kind in COMPUTED and argument.kind not in ("size", "order")
        return is_made and self._spec(argument.name) is None and self._is_optional(argument.name)

    def _is_optional(self, tensor: str) -> bool:
        return any(each.kind == "input" and each.name == tensor and each.optional for each in self.entry.roles())

    def _require_inputs(self) -> None:
        start = self.entry.starts_as
        taken = {each.name: each.optional for each in self.entry.roles() if each.kind == "input"}
        if start is not None:
            taken.setdefault(start.input, bool(start.without))
        present = [key.partition(":")[2] for key, spec in self._specs.items() if key.startswith("input:") and spec]
        for name in present:
            if name not in taken:
                raise Gap(f"{self._any_function()} does not take the input {name}")
        for name, optional in taken.items():
            if name not in present and not optional:
                raise Gap(f"{self._any_function()} needs the input {name}, which the case leaves out")

    def _require_attributes(self) -> None:
        for name, wanted in self.entry.when.items():
            value = self._attributes.get(name)
            if not any(self._is(value, each) for each in (wanted if isinstance(wanted, list) else [wanted])):
                raise Gap(f"{self._any_function()} has no {name} of {value!r}")

    def _is(self, value: Any, wanted: Any) -> bool:
        """``last`` is the first input's last dimension, counted from either end, perhaps in a list."""
        if wanted != LAST:
            return bool(value == wanted)
        spec = next(spec for key, spec in self._specs.items() if key.startswith("input:") and spec is not None)
        one = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
        return type(one) is int and one in (-1, spec.rank - 1)

    def _choose(self) -> None:
        dtypes = list(dict.fromkeys(self._dtypes_alike()))
        if len(dtypes) > 1:
            said = ", ".join(sorted(dtypes))
            raise Gap(f"{self._any_function()} takes tensors of one dtype, but the case has {said}")
        name = dtypes[0] if dtypes else next(iter(self.entry.functions))
        if name not in self.entry.functions and not self._is_told_any_dtype():
            known = ", ".join(dict.fromkeys(self.entry.functions.values()))
            raise Gap(f"there is no function for {name}; there is {known}")
        self._dtype = name
        self._function = self.entry.functions.get(name) or self._any_function()

    def _dtypes_alike(self) -> list[str]:
        """Those of the tensors that have to share one; another one of theirs is a gap."""
        found: list[str] = []
        for key, spec in self._specs.items():
            tensor, own = key.partition(":")[2], "" if spec is None else spec.dtype.name
            allowed = self.entry.dtypes_of.get(tensor)
            if spec is None or key == f"output:{self.entry.returns}":
                continue
            if self._is_wrong and found and self.entry.is_told("dtype", tensor):
                continue
            if allowed is None or (SAME in allowed and own not in allowed):
                found.append(own)
            elif own not in allowed:
                raise Gap(f"{self._any_function()} takes {tensor} of {' or '.join(allowed)}, but the case has {own}")
        return found

    def _is_told_any_dtype(self) -> bool:
        """For a call that has to be refused: one function for all dtypes, which is told them."""
        tensors = [key.partition(":")[2] for key, spec in self._specs.items() if spec is not None]
        is_one = len(set(self.entry.functions.values())) == 1
        return self._is_wrong and is_one and all(self.entry.is_told("dtype", each) for each in tensors)

    def _measure(self) -> None:
        """Every name of a dimension is one size."""
        sizes: dict[str, tuple[int, str]] = {}
        for tensor, dims in self.entry.dims.items():
            spec = self._spec(tensor)
            if spec is None:
                continue
            told = _dense(spec) if self._is_told_strides(tensor) else spec
            self._axes[tensor] = self._of(tensor, axes_of, told, dims, swapped=self._is_swapped(tensor))
            for name, axis in zip(dims, self._axes[tensor], strict=True):
                plain = name.removesuffix("...")
                if plain.isdecimal():
                    self._require_size(tensor, int(plain), axis.size)
                    continue
                size, first = sizes.setdefault(plain, (axis.size, tensor))
                if size != axis.size:
                    raise Gap(f"{self._function} takes one {plain}, but {first} has {size} and {tensor} {axis.size}")
        self._sizes = {name: size for name, (size, _) in sizes.items()}
        for name, least in self.entry.least.items():
            if self._sizes.get(name, least) < least:
                raise Gap(f"{self._function} takes {least} or more as {name}, but it is {self._sizes[name]}")
        returned = self._specs.get(f"output:{self.entry.returns}")
        if returned is not None and returned.elements != 1:
            raise Gap(f"{self._function} returns one number, but {self.entry.returns} has {returned.elements}")

    def _require_size(self, tensor: str, wanted: int, size: int) -> None:
        if size != wanted:
            raise self._gap(tensor, f"has the size {size}, but should have {wanted} there")

    def _lay_out(self) -> None:
        arguments = self.entry.told()
        ordering = next((each for each in arguments if each.kind == "order"), None)
        order = Order() if ordering is None else self._order_of(ordering.name)
        said = self._said(arguments)
        self._require_same_layout()
        for tensor, axes in self._axes.items():
            if self._is_told_strides(tensor):
                continue
            if len(axes) == 1:
                increment = said.get(("increment", tensor))
                allowed = "any" if increment is None else _allowed(increment)
                step = self._of(tensor, increment_of, axes[0], allowed)
                if increment is None and step != 1 and axes[0].size > 1:
                    raise self._gap(tensor, f"has the increment {step}, but should have 1")
            elif len(axes) == 2:
                matrix = self._of(tensor, matrix_of, *axes, order)
                if matrix.is_transposed and ("layout", tensor) not in said:
                    raise self._gap(tensor, f"does not lie by {order.line}, as it should")
                if ("leading", tensor) not in said and matrix.leading != _length_of_a_line(matrix, order):
                    raise self._gap(tensor, f"has lines at a distance of {matrix.leading}, but should be dense")
                self._matrices[tensor] = matrix
            elif axes:
                raise self._gap(tensor, f"has {len(axes)} dimensions, but should have 2 or less")

    def _said(self, arguments: Sequence[Argument]) -> dict[tuple[str, str], Argument]:
        """Arguments by kind and tensor; what is said of one tensor goes for those in the same layout."""
        alike = self.entry.same_layout
        found = {
            (each.kind, tensor): each
            for each in arguments
            if each.kind in ("increment", "leading", "layout") and each.name in alike
            for tensor in alike
        }
        return {**found, **{(each.kind, each.name): each for each in arguments}}

    def _require_same_layout(self) -> None:
        """Of the steps that are taken: a size of 1 has none."""
        steps = {
            tensor: [axis.stride for axis in self._axes[tensor] if axis.size > 1]
            for tensor in self.entry.same_layout
            if tensor in self._axes
        }
        first = next(iter(steps), "")
        for tensor, own in steps.items():
            if own != steps[first]:
                raise Gap(
                    f"{self._function} takes {first} and {tensor} in one layout, but the steps are "
                    f"{steps[first]} and {own}"
                )

    def _is_told_strides(self, tensor: str) -> bool:
        return self.entry.is_told("strides", tensor)

    def _order_of(self, tensor: str) -> Order:
        """By rows if the tensor lies so, else by columns."""
        matrix: Matrix = self._of(tensor, matrix_of, *self._axes[tensor], Order())
        return Order(by_rows=not matrix.is_transposed)

    def _value(self, argument: Argument) -> int | str | tuple[int, ...]:
        name = argument.name
        match argument.kind:
            case "size":
                size = self._sizes[name]
                return size * dtype(self._dtype).itemsize_bytes if argument.type == "bytes" else size
            case "increment":
                step = increment_of(self._axes[name][0], _allowed(argument))
                return step * self._present(name).dtype.itemsize_bytes if "bytes" in argument.type else step
            case "layout":
                return argument.pair[self._matrices[name].is_transposed]
            case "order":
                return argument.pair[not self._order_of(name).by_rows]
            case "rows":
                return self._matrices[name].rows
            case "columns":
                return self._matrices[name].columns
            case "elements":
                spec = self._present(name)
                return spec.elements * (spec.dtype.itemsize_bytes if argument.type == "bytes" else 1)
            case "ndim":
                return self._present(name).rank
            case "dtype":
                return self._constant_of(self._present(name).dtype.name)
            case "shape" | "strides":
                return self._array(argument)
        leading = self._matrices[name].leading
        return leading * self._present(name).dtype.itemsize_bytes if argument.type == "bytes" else leading

    def _constant_of(self, name: str) -> str:
        if name not in self._constants:
            raise Gap(f"{self._function} is told dtypes, of which the mapping does not have {name}")
        return self._constants[name]

    def _array(self, argument: Argument) -> tuple[int, ...]:
        """Sizes or strides of a tensor as C counts its dimensions; those in front that it lacks have the size 1."""
        spec, form = self._present(argument.name), argument.array or ArrayForm(element="int")
        shape = list(spec.shape)
        strides = list(contiguous_strides(spec.shape) if spec.strides is None else spec.strides)
        if self._is_swapped(argument.name) and spec.rank > 1:
            for each in (shape, strides):
                each[-2:] = each[-1], each[-2]
        if form.length is not None and spec.rank > form.length:
            raise self._gap(argument.name, f"has {spec.rank} dimensions, but should have {form.length} at most")
        for _ in range((form.length or 0) - spec.rank):
            strides.insert(0, max(shape[0], 1) * strides[0] if shape else 1)
            shape.insert(0, 1)
        if form.in_bytes:
            strides = [each * spec.dtype.itemsize_bytes for each in strides]
        told = shape if argument.kind == "shape" else strides
        return tuple(reversed(told) if form.is_reversed else told)

    def _present(self, tensor: str) -> TensorSpec:
        spec = self._spec(tensor)
        if spec is None:
            raise Gap(f"{self._function} is told the layout of {tensor}, which the case leaves out")
        return spec

    def _behind(self, tensor: str) -> int:
        axes = self._axes.get(tensor, ())
        if not self._from_lowest or len(axes) != 1 or axes[0].stride >= 0:
            return 0
        return axes[0].stride * max(axes[0].size - 1, 0) * self._present(tensor).dtype.itemsize_bytes

    def _is_swapped(self, tensor: str) -> bool:
        stated = self.entry.swapped.get(tensor, False)
        return stated if isinstance(stated, bool) else bool(self._attributes.get(stated))

    def _spec(self, tensor: str) -> TensorSpec | None:
        return self._specs.get(f"input:{tensor}") or self._specs.get(f"output:{tensor}")

    def _of(self, tensor: str, measure: Any, *arguments: Any, **named: Any) -> Any:
        """What is measured of a tensor, with its name in a gap."""
        try:
            return measure(*arguments, **named)
        except Gap as gap:
            raise self._gap(tensor, str(gap)) from None

    def _gap(self, tensor: str, why: str) -> Gap:
        return Gap(f"{self._function} cannot take {tensor}, which {why}")

    def _any_function(self) -> str:
        return next(iter(self.entry.functions.values()))


COMPUTED = (
    *("size", "increment", "layout", "order", "rows", "columns", "leading"),
    *("elements", "ndim", "shape", "strides", "dtype"),
)


def _allowed(increment: Argument) -> str:
    """``any``, ``nonzero`` or ``positive``, whether it counts elements or bytes."""
    return increment.type.removesuffix("bytes").strip() or "nonzero"


def broadcast_specs(entry: DirectCall, specs: Specs) -> dict[str, TensorSpec | None]:
    """The tensors as memory will hold them: of the first output's shape, by strides of 0, where the mapping says so."""
    outputs = [spec for key, spec in specs.items() if key.startswith("output:") and spec is not None]
    if not entry.broadcasts or not outputs:
        return dict(specs)
    return {
        key: _expanded(spec, outputs[0].shape) if key.startswith("input:") and spec is not None else spec
        for key, spec in specs.items()
    }


def _expanded(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """Itself where it does not broadcast."""
    if spec.shape == shape or len(spec.shape) > len(shape):
        return spec
    axes = axes_of(spec, [f"d{index}" for index in range(spec.rank)])
    strides = [0] * (len(shape) - spec.rank)
    for axis, size in zip(axes, shape[len(strides) :], strict=True):
        if axis.size not in (1, size):
            return spec
        strides.append(axis.stride if axis.size == size else 0)
    return TensorSpec(dtype=spec.dtype, shape=shape, strides=tuple(strides), offset=spec.offset)


def _dense(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(dtype=spec.dtype, shape=spec.shape)


def _length_of_a_line(matrix: Matrix, order: Order) -> int:
    return max(1, matrix.columns if order.by_rows else matrix.rows)
