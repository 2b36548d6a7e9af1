"""Which entry of a mapping answers a case, with which sizes, increments and leading dimensions, or in words why none
does: what C cannot be told, and wrong calls that nothing refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from optest.clib.library.arguments import Argument, ArrayForm
from optest.clib.library.attributes import require_attributes
from optest.clib.library.case_tensors import NO_REQUEST, CallRequest, OutputLayout, specs_of_case
from optest.clib.library.layouts import (
    Axis,
    Gap,
    Matrix,
    axes_of,
    dense,
    increment_of,
    matrix_of,
    reaches,
    require_dtypes,
    require_promised,
    strides_of,
)
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.operator_mapping import OperatorMapping
from optest.spec import TensorSpec, TestCase, dtype

Specs = Mapping[str, TensorSpec | None]
"""By role: ``input:a``, ``output:out``; None for an input that is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCase:
    """A function for one case. ``values`` are integers, lists of them and the names of constants, by argument;
    ``dtype`` is the one by which it was chosen, ``specs`` the tensors by role.

    ``behind`` says for each tensor by role how many bytes behind element [0, 0, …] the pointer points: below 0 for a
    vector that is walked backwards and named by its lowest address.
    """

    entry: OperatorMapping
    function: str
    dtype: str
    values: Mapping[Argument, int | str | tuple[int, ...]]
    behind: Mapping[str, int]
    specs: Specs


def bind_case(
    case: TestCase, mapping: LibraryMapping, layouts: Sequence[OutputLayout] = (), request: CallRequest = NO_REQUEST
) -> BoundCase:
    """The first of the operator's entries that can express the case.

    Raises:
        Gap: why none can, told of the one that came nearest.
    """
    reasons: list[tuple[int, str]] = []
    for entry in mapping.entries(case.descriptor):
        step = 0
        try:
            first = case.inputs[0].spec if case.inputs else None
            require_attributes(case, entry, first)
            step = 1
            binding = _Binding(entry, specs_of_case(case, entry, layouts, request), case, mapping)
            try:
                return binding.bound()
            finally:
                step += binding.step
        except Gap as gap:
            reasons.append((step, str(gap)))
    if not reasons:
        raise Gap(f"there is no operator {case.descriptor.name}")
    raise Gap(max(reasons, key=lambda each: each[0])[1])


def rebind(bound: BoundCase, specs: Specs, case: TestCase, mapping: LibraryMapping) -> BoundCase:
    """The same entry for other tensors, by role.

    Raises:
        Gap: if it cannot express them.
    """
    if all(_described(spec) == _described(bound.specs.get(key)) for key, spec in specs.items()):
        return bound
    return _Binding(bound.entry, {**bound.specs, **specs}, case, mapping).bound()


def _described(spec: TensorSpec | None) -> Any:
    """What C is told of it, which is no offset."""
    return spec and (spec.dtype, spec.shape, strides_of(spec))


class _Binding:
    """One attempt; ``step`` tells how far it came."""

    def __init__(self, entry: OperatorMapping, specs: Specs, case: TestCase, mapping: LibraryMapping) -> None:
        self.entry = entry
        self.step = 0
        self._read = entry.read
        self._attributes = case.attributes
        self._mapping = mapping
        self._is_wrong = case.expects_error is not None
        self._function, self._dtype = entry.any_function, ""
        self._given = _by_name(specs)
        self._specs = broadcast_specs(entry, specs)
        self._tensors = _by_name(self._specs)
        self._in_c: dict[str, TensorSpec] = {}
        self._axes: dict[str, tuple[Axis, ...]] = {}
        self._matrices: dict[str, Matrix] = {}
        self._sizes: dict[str, int] = {}

    def bound(self) -> BoundCase:
        for step in (self._require_inputs, self._choose, self._require_promised, self._measure, self._lay_out):
            step()
            self.step += 1
        read = self._read
        return BoundCase(
            entry=self.entry,
            function=self._function,
            dtype=self._dtype,
            values={each: self._value(each) for each in read.computed if not self._is_left_out(each)},
            behind={each.key: self._behind(each.name) for each in read.roles if each.kind in ("input", "output")},
            specs=self._specs,
        )

    def _is_left_out(self, argument: Argument) -> bool:
        """Whether it says something of a tensor that the case leaves out and C does without: nothing is made of it."""
        is_of_a_tensor = argument.kind not in ("size", "order")
        return is_of_a_tensor and self._read.inputs.get(argument.name, False) and argument.name not in self._tensors

    def _require_inputs(self) -> None:
        taken, made = self._read.inputs, self._read.made_tensors
        for name in sorted(key.partition(":")[2] for key, spec in self._specs.items() if spec and "input:" in key):
            if name not in taken and name not in made:
                raise Gap(f"{self._function} does not take the input {name}")
        for name, optional in taken.items():
            if name not in self._tensors and not optional:
                raise Gap(f"{self._function} needs the input {name}, which the case leaves out")
        for each in self.entry.read.roles:
            spec = self._tensors.get(each.name)
            if each.kind == "scalar" and spec is not None and spec.elements != 1:
                raise Gap(f"{self._function} takes the input {each.name} by value, but it is {spec}")

    def _choose(self) -> None:
        """The function for the dtype that the tensors share; a wrong call may have any that C is told."""
        tensors = {name: spec for name, spec in self._tensors.items() if name != self.entry.returns}
        known = {name for kind, name in self._read.kinds if kind == "dtype"} | {
            each.input for each in self.entry.starts
        }
        self._dtype = require_dtypes(tensors, self.entry, known & tensors.keys() if self._is_wrong else ())
        self._function = self.entry.function_of(self._dtype)

    def _require_promised(self) -> None:
        if not self._is_wrong:
            require_promised(self._given, self.entry)

    def _measure(self) -> None:
        """Every name of a dimension is one size."""
        sizes: dict[str, tuple[int, str]] = {}
        for tensor, dims in self.entry.dims.items():
            if tensor not in self._tensors:
                continue
            spec = self._counted(tensor)
            axes = self._of(tensor, axes_of, dense(spec) if self._passes_strides(tensor) else spec, dims)
            self._axes[tensor] = axes
            for name, axis in zip((each.removesuffix("...") for each in dims), axes, strict=True):
                if name.isdecimal():
                    if axis.size != int(name):
                        raise self._gap(tensor, f"has the size {axis.size}, expected {int(name)} there")
                    continue
                size, first = sizes.setdefault(name, (axis.size, tensor))
                if size != axis.size:
                    raise Gap(f"{self._function} takes one {name}, but {first} has {size} and {tensor} {axis.size}")
        self._sizes = {name: size for name, (size, _) in sizes.items()}
        for name, least in self.entry.least.items():
            if self._sizes.get(name, least) < least:
                raise Gap(f"{self._function} takes {least} or more as {name}, but it is {self._sizes[name]}")
        returned = self._tensors.get(self.entry.returns)
        if returned is not None and returned.elements != 1:
            raise Gap(f"{self._function} returns one number, but {self.entry.returns} has {returned.elements}")

    def _lay_out(self) -> None:
        if not self._axes:
            return
        ordering = next((each for each in self._read.passed if each.kind == "order"), None)
        by_rows = ordering is None or self._is_by_rows(ordering.name)
        passed = self._passed_of_layouts()
        self._require_same_layout()
        for tensor, axes in self._axes.items():
            if self._passes_strides(tensor):
                continue
            if any(key == ("stride", tensor) for key in self._read.kinds):
                self._require_strides(tensor, axes)
            elif len(axes) == 1:
                increment = passed.get(("increment", tensor))
                step = self._of(tensor, increment_of, axes[0], "any" if increment is None else increment.allowed)
                if increment is None and step != 1 and axes[0].size > 1:
                    raise self._gap(tensor, f"has the increment {step}, expected 1")
            elif len(axes) == 2:
                matrix = self._of(tensor, partial(matrix_of, by_rows=by_rows), *axes)
                if matrix.is_transposed and ("layout", tensor) not in passed:
                    raise self._gap(tensor, f"does not lie by {'rows' if by_rows else 'columns'}, as it should")
                length = max(1, matrix.columns if by_rows else matrix.rows)
                if ("leading", tensor) not in passed and matrix.leading != length:
                    raise self._gap(tensor, f"has lines at a distance of {matrix.leading}, expected dense")
                self._matrices[tensor] = matrix
            elif axes:
                raise self._gap(tensor, f"has {len(axes)} dimensions, expected 2 or less")

    def _require_strides(self, tensor: str, axes: Sequence[Axis]) -> None:
        """Require strides that C takes; a dimension without one is walked together with the next."""
        passed = {each.index: each for each in self._read.passed if each.kind == "stride" and each.name == tensor}
        step = 1
        for index, axis in reversed(list(enumerate(axes))):
            if index in passed:
                step = self._of(tensor, increment_of, axis, passed[index].allowed)
            elif axis.size > 1 and axis.stride != step:
                raise self._gap(tensor, f"has the stride {axis.stride} in dimension {index}, expected {step}")
            step *= axis.size

    def _passed_of_layouts(self) -> dict[tuple[str, str], Argument]:
        """Arguments by kind and tensor; what is said of one tensor goes for those in the same layout."""
        alike = self.entry.same_layout
        layouts = [each for each in self._read.passed if each.kind in ("increment", "leading", "layout")]
        shared = {(each.kind, tensor): each for each in layouts if each.name in alike for tensor in alike}
        return {**shared, **{(each.kind, each.name): each for each in layouts}}

    def _require_same_layout(self) -> None:
        """Of the steps that are taken: a size of 1 has none."""
        alike = [tensor for tensor in self.entry.same_layout if tensor in self._axes]
        steps = {tensor: [axis.stride for axis in self._axes[tensor] if axis.size > 1] for tensor in alike}
        for tensor in alike[1:]:
            first = alike[0]
            if steps[tensor] != steps[first]:
                both = f"{steps[first]} and {steps[tensor]}"
                raise Gap(f"{self._function} takes {first} and {tensor} in one layout, but the steps are {both}")

    def _passes_strides(self, tensor: str) -> bool:
        return ("strides", tensor) in self._read.kinds

    def _is_by_rows(self, tensor: str) -> bool:
        matrix: Matrix = self._of(tensor, matrix_of, *self._axes[tensor])
        return not matrix.is_transposed

    def _value(self, argument: Argument) -> int | str | tuple[int, ...]:
        name, kind = argument.name, argument.kind
        if kind == "size":
            return self._sizes[name] * (dtype(self._dtype).itemsize_bytes if argument.type == "bytes" else 1)
        if kind in ("shape", "strides"):
            return self._array(argument)
        if kind == "layout":
            return argument.pair[self._matrices[name].is_transposed]
        if kind == "order":
            return argument.pair[not self._is_by_rows(name)]
        if kind in ("rows", "columns"):
            return int(getattr(self._matrices[name], kind))
        spec = self._present(name)
        if kind == "ndim":
            return spec.rank
        if kind == "dtype" and spec.dtype.name not in self._mapping.dtypes:
            raise Gap(f"{self._function} is told dtypes, of which the mapping does not have {spec.dtype.name}")
        if kind == "dtype":
            return self._mapping.dtypes[spec.dtype.name]
        if kind in ("increment", "stride"):
            elements = increment_of(self._axes[name][argument.index or 0], argument.allowed)
        else:
            elements = spec.elements if kind == "elements" else self._matrices[name].leading
        return elements * (spec.dtype.itemsize_bytes if "bytes" in argument.type else 1)

    def _array(self, argument: Argument) -> tuple[int, ...]:
        """Sizes or strides of a tensor as C counts its dimensions; those in front that it lacks have the size 1."""
        spec, form = self._counted(argument.name), argument.array or ArrayForm(element="int")
        shape, strides = list(spec.shape), list(strides_of(spec))
        if form.length is not None and spec.rank > form.length:
            raise self._gap(argument.name, f"has {spec.rank} dimensions, expected {form.length} at most")
        for _ in range((form.length or 0) - spec.rank):
            strides.insert(0, max(shape[0], 1) * strides[0] if shape else 1)
            shape.insert(0, 1)
        if form.in_bytes:
            strides = [each * spec.dtype.itemsize_bytes for each in strides]
        numbers = shape if argument.kind == "shape" else strides
        return tuple(reversed(numbers) if form.is_reversed else numbers)

    def _present(self, tensor: str) -> TensorSpec:
        if tensor not in self._tensors:
            raise Gap(f"{self._function} is told the layout of {tensor}, which the case leaves out")
        return self._tensors[tensor]

    def _behind(self, tensor: str) -> int:
        axes = self._axes.get(tensor, ())
        if self._mapping.negative_increments != "lowest" or len(axes) != 1 or axes[0].stride >= 0:
            return 0
        return axes[0].stride * max(axes[0].size - 1, 0) * self._present(tensor).dtype.itemsize_bytes

    def _counted(self, tensor: str) -> TensorSpec:
        """A tensor with its dimensions in C's order; one of too few dimensions as it is."""
        if tensor not in self._in_c:
            self._in_c[tensor] = self._turned(self._present(tensor), self.entry.swapped.get(tensor, False))
        return self._in_c[tensor]

    def _turned(self, spec: TensorSpec, rule: str | bool | tuple[int, int]) -> TensorSpec:
        last_two = rule if isinstance(rule, bool) else isinstance(rule, str) and bool(self._attributes.get(rule))
        one, two = rule if isinstance(rule, tuple) else (-2, -1) if last_two else (0, 0)
        if one == two or not all(-spec.rank <= dim < spec.rank for dim in (one, two)):
            return spec
        shape, strides = list(spec.shape), list(strides_of(spec))
        for sizes in (shape, strides):
            sizes[one], sizes[two] = sizes[two], sizes[one]
        return TensorSpec(dtype=spec.dtype, shape=tuple(shape), strides=tuple(strides), offset=spec.offset)

    def _of(self, tensor: str, measure: Any, *arguments: Any) -> Any:
        """What is measured of a tensor, with its name in a gap."""
        try:
            return measure(*arguments)
        except Gap as gap:
            raise self._gap(tensor, str(gap)) from None

    def _gap(self, tensor: str, why: str) -> Gap:
        return Gap(f"{self._function} cannot take {tensor}, which {why}")


def _by_name(specs: Specs) -> dict[str, TensorSpec]:
    return {key.partition(":")[2]: spec for key, spec in specs.items() if spec is not None}


def broadcast_specs(entry: OperatorMapping, specs: Specs) -> dict[str, TensorSpec | None]:
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
    if spec.shape == shape or not reaches(spec.shape, shape):
        return spec
    missing = len(shape) - spec.rank
    sized = zip(spec.shape, strides_of(spec), shape[missing:], strict=True)
    strides = (*[0] * missing, *(stride if own == size else 0 for own, stride, size in sized))
    return TensorSpec(dtype=spec.dtype, shape=shape, strides=strides, offset=spec.offset)


def lack(
    case: TestCase, mapping: LibraryMapping, layouts: Sequence[OutputLayout] = (), request: CallRequest = NO_REQUEST
) -> str | None:
    """Why no function of the mapping can be called for this case, in words; ``layouts`` are those of the outputs,
    ``request`` is what is done otherwise in the call."""
    alternatives = mapping.entries(case.descriptor)
    if not alternatives:
        return f"mapping {mapping.name} has no operator {case.descriptor.name}; it has {', '.join(mapping.operators)}"
    why = "" if case.expects_error is None else _why_accepted(case, mapping, request)
    if why:
        return f"mapping {mapping.name}: {case.descriptor.name} {why}"
    try:
        bound = bind_case(case, mapping, layouts, request)
        if case.expects_error is not None:
            _require_described(bound, case, request)
    except Gap as gap:
        return f"mapping {mapping.name}: {gap}"
    return None


def _why_accepted(case: TestCase, mapping: LibraryMapping, request: CallRequest) -> str:
    """Why nobody can expect that a call is refused; empty if one can."""
    if not mapping.status:
        return "is called without a status by which it could refuse"
    promised = {kind for entry in mapping.entries(case.descriptor) for kind in mapping.promised(entry)}
    mixed = len({argument.spec.dtype for argument in case.inputs}) > 1
    if not request and not promised & {"dtype" if mixed else "shape", "index"}:
        return "does not promise to refuse what does not fit (`refuses: [shape, dtype]`)"
    return ""


def _require_described(bound: BoundCase, case: TestCase, request: CallRequest) -> None:
    """A call can be refused for what C is told of it; a gap for anything else."""
    entry, read, function = bound.entry, bound.entry.read, bound.entry.any_function
    not_described = {each.name for each in read.passed if each.kind == "scalar"}
    not_described |= {start.input for start in entry.starts}  # C is told of the outputs that hold them
    named = ((key.partition(":")[2], spec) for key, spec in bound.specs.items() if spec is not None)
    specs = {name: spec for name, spec in named if name not in not_described}
    shared = {name: spec.dtype for name, spec in specs.items() if spec.dtype.name not in entry.dtypes_of.get(name, ())}
    reshaped = [key.partition(":")[2] for key in request.shapes]
    wrong = {  # without outputs inputs or attributes do not fit, and the outputs are memory that nothing is wrong with
        "shape": reshaped if case.outputs else [argument.name for argument in case.inputs],
        "dtype": shared if request.dtypes or len(set(shared.values())) > 1 else (),
    }
    for kind, tensors in wrong.items():
        for tensor in tensors:
            if tensor in specs and (kind, tensor) not in read.kinds:
                raise Gap(f"{function} is not told the {kind} of {tensor}, so it cannot refuse it")
    for key in request.null:
        has_it = {
            "handle": read.passes("handle"),
            "descriptor": bool(entry.objects),
            "workspace": entry.workspace is not None,
        }
        if not has_it.get(key, key != f"output:{entry.returns}"):
            raise Gap(f"{function} takes no {key}")
    for key in request.null_descriptor:
        tensor = key.partition(":")[2]
        if not any(each.name == tensor and (each.as_descriptor or each.as_tensor) for each in read.passed):
            raise Gap(f"{function} takes no descriptor of {tensor}")
    if request.short_workspace and entry.workspace is None:
        raise Gap(f"{function} takes no workspace")
