"""Bind a case to an entry of a mapping: compute sizes, increments and leading dimensions, or the reason why no entry
fits."""

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
from optest.spec.tensors import dense

Specs = Mapping[str, TensorSpec | None]  # Tensors by role (input:a, output:out); None for an omitted input.


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCase:
    """A C function with the computed arguments of one case."""

    entry: OperatorMapping
    function: str
    dtype: str  # by which the function was chosen
    values: Mapping[Argument, int | str | tuple[int, ...]]
    behind: Mapping[str, int]  # byte offset of each pointer from element [0, 0, …], by role
    specs: Specs  # by role


def bind_case(
    case: TestCase, mapping: LibraryMapping, layouts: Sequence[OutputLayout] = (), request: CallRequest = NO_REQUEST
) -> BoundCase:
    """Return the binding to the first entry that fits; raise the Gap of the entry that passed the most checks."""
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
                # The entry that passed the most checks gives the most useful reason.
                step += binding.step
        except Gap as gap:
            reasons.append((step, str(gap)))
    if not reasons:
        raise Gap(f"there is no operator {case.descriptor.name}")
    raise Gap(max(reasons, key=lambda each: each[0])[1])


def rebind(bound: BoundCase, specs: Specs, case: TestCase, mapping: LibraryMapping) -> BoundCase:
    """Return the binding of the same entry to other tensors by role; raise Gap if it cannot express them."""
    if all(_described_to_c(spec) == _described_to_c(bound.specs.get(key)) for key, spec in specs.items()):
        return bound
    return _Binding(bound.entry, {**bound.specs, **specs}, case, mapping).bound()


def _described_to_c(spec: TensorSpec | None) -> Any:
    """Return the properties of a tensor that C receives; the offset is not among them."""
    return spec and (spec.dtype, spec.shape, strides_of(spec))


class _Binding:
    """One attempt to bind an entry; ``step`` counts the checks that passed."""

    def __init__(self, entry: OperatorMapping, specs: Specs, case: TestCase, mapping: LibraryMapping) -> None:
        self.entry = entry
        self.step = 0
        self._read = entry.read
        self._attributes = case.attributes
        self._mapping = mapping
        self._is_wrong = case.expects_error is not None  # a wrong call need not keep the library's limits
        self._function, self._dtype = entry.any_function, ""
        self._case_tensors = _specs_by_name(specs)
        self._specs = broadcast_specs(entry, specs)
        self._tensors = _specs_by_name(self._specs)
        self._reordered: dict[str, TensorSpec] = {}
        self._axes: dict[str, tuple[Axis, ...]] = {}
        self._matrices: dict[str, Matrix] = {}
        self._sizes: dict[str, int] = {}

    def bound(self) -> BoundCase:
        """Run all checks in order and return the binding."""
        checks = (self._require_inputs, self._choose_function, self._require_promised)
        for check in (*checks, self._measure_sizes, self._require_layouts):
            check()
            self.step += 1
        read = self._read
        return BoundCase(
            entry=self.entry,
            function=self._function,
            dtype=self._dtype,
            values={arg: self._compute_value(arg) for arg in read.computed if not self._is_omitted(arg)},
            behind={
                role.key: self._pointer_offset(role.name) for role in read.roles if role.kind in ("input", "output")
            },
            specs=self._specs,
        )

    def _is_omitted(self, argument: Argument) -> bool:
        """Return whether the argument describes an optional tensor that the case omits."""
        is_of_a_tensor = argument.kind not in ("size", "order")
        return is_of_a_tensor and self._read.inputs.get(argument.name, False) and argument.name not in self._tensors

    def _require_inputs(self) -> None:
        """Raise a gap for an input that the entry lacks or requires, or one passed by value that is no single
        number."""
        taken, as_tensors = self._read.inputs, self._read.made_tensors
        for name in sorted(key.partition(":")[2] for key, spec in self._specs.items() if spec and "input:" in key):
            if name not in taken and name not in as_tensors:
                raise Gap(f"{self._function} does not take the input {name}")
        for name, optional in taken.items():
            if name not in self._tensors and not optional:
                raise Gap(f"{self._function} needs the input {name}, which the case omits")
        for role in self.entry.read.roles:
            spec = self._tensors.get(role.name)
            if role.kind == "scalar" and spec is not None and spec.elements != 1:
                raise Gap(f"{self._function} takes the input {role.name} by value, but it is {spec}")

    def _choose_function(self) -> None:
        """Choose the function by the dtype that the tensors share; a wrong call may use any dtype that C receives."""
        tensors = {name: spec for name, spec in self._tensors.items() if name != self.entry.returns}
        known = {name for kind, name in self._read.kinds if kind == "dtype"}
        known |= {start.input for start in self.entry.starts}
        self._dtype = require_dtypes(tensors, self.entry, known & tensors.keys() if self._is_wrong else ())
        self._function = self.entry.function_of(self._dtype)

    def _require_promised(self) -> None:
        if not self._is_wrong:
            require_promised(self._case_tensors, self.entry)

    def _measure_sizes(self) -> None:
        """Compute the size of each named dimension; raise a gap if two tensors disagree."""
        sizes: dict[str, tuple[int, str]] = {}
        for tensor, dims in self.entry.dims.items():
            if tensor not in self._tensors:
                continue
            spec = self._in_c_order(tensor)
            axes = self._named(
                tensor, axes_of, dense(spec.dtype, spec.shape) if self._passes_strides(tensor) else spec, dims
            )
            self._axes[tensor] = axes
            for name, axis in zip((x.removesuffix("...") for x in dims), axes, strict=True):
                if name.isdecimal():
                    if axis.size != int(name):
                        raise self._tensor_gap(tensor, f"has the size {axis.size}, expected {int(name)} there")
                    continue
                size, first = sizes.setdefault(name, (axis.size, tensor))
                if size != axis.size:
                    raise Gap(f"{self._function} takes one {name}, but {first} has {size}, {tensor} {axis.size}")
        self._sizes = {name: size for name, (size, _) in sizes.items()}
        for name, least in self.entry.least.items():
            if self._sizes.get(name, least) < least:
                raise Gap(f"{self._function} takes {least} or more as {name}, but it is {self._sizes[name]}")
        returned = self._tensors.get(self.entry.returns)
        if returned is not None and returned.elements != 1:
            raise Gap(f"{self._function} returns one number, but output {self.entry.returns} has {returned.elements}")

    def _require_layouts(self) -> None:
        """Require strides, increments and leading dimensions that the entry can pass; store the matrices."""
        if not self._axes:
            return
        ordering = next((arg for arg in self._read.passed if arg.kind == "order"), None)
        by_rows = ordering is None or self._is_by_rows(ordering.name)
        passed = self._layout_arguments()
        self._require_same_layout()
        for tensor, axes in self._axes.items():
            if self._passes_strides(tensor):
                continue  # C receives the layout itself
            if any(key == ("stride", tensor) for key in self._read.kinds):
                self._require_strides(tensor, axes)
            elif len(axes) == 1:
                increment = passed.get(("increment", tensor))
                step = self._named(tensor, increment_of, axes[0], "any" if increment is None else increment.allowed)
                if increment is None and step != 1 and axes[0].size > 1:
                    raise self._tensor_gap(tensor, f"has the increment {step}, expected 1")
            elif len(axes) == 2:
                matrix = self._named(tensor, partial(matrix_of, by_rows=by_rows), *axes)
                if matrix.is_transposed and ("layout", tensor) not in passed:
                    raise self._tensor_gap(tensor, f"is not stored by {'rows' if by_rows else 'columns'}")
                length = max(1, matrix.columns if by_rows else matrix.rows)
                if ("leading", tensor) not in passed and matrix.leading != length:
                    raise self._tensor_gap(tensor, f"has lines at a distance of {matrix.leading}, expected dense")
                self._matrices[tensor] = matrix
            elif axes:
                raise self._tensor_gap(tensor, f"has {len(axes)} dimensions, expected 2 or less")

    def _require_strides(self, tensor: str, axes: Sequence[Axis]) -> None:
        """Require strides that C takes; a dimension without a passed stride must be dense with the next one."""
        passed = {arg.index: arg for arg in self._read.passed if arg.kind == "stride" and arg.name == tensor}
        step = 1
        for index, axis in reversed(list(enumerate(axes))):
            if index in passed:
                step = self._named(tensor, increment_of, axis, passed[index].allowed)
            elif axis.size > 1 and axis.stride != step:
                raise self._tensor_gap(tensor, f"has the stride {axis.stride} in dimension {index}, expected {step}")
            step *= axis.size

    def _layout_arguments(self) -> dict[tuple[str, str], Argument]:
        """Return layout arguments by kind and tensor; one of a ``same_layout`` tensor counts for its group."""
        alike = self.entry.same_layout
        layouts = [arg for arg in self._read.passed if arg.kind in ("increment", "leading", "layout")]
        shared = {(x.kind, tensor): x for x in layouts if x.name in alike for tensor in alike}
        return {**shared, **{(x.kind, x.name): x for x in layouts}}

    def _require_same_layout(self) -> None:
        """Raise a gap if tensors of a ``same_layout`` group differ in strides; dimensions of size 1 are ignored."""
        alike = [tensor for tensor in self.entry.same_layout if tensor in self._axes]
        steps = {tensor: [axis.stride for axis in self._axes[tensor] if axis.size > 1] for tensor in alike}
        for tensor in alike[1:]:
            first = alike[0]
            if steps[tensor] != steps[first]:
                both = f"{steps[first]} and {steps[tensor]}"
                raise Gap(f"{self._function} takes {first} and {tensor} in one layout, but the strides are {both}")

    def _passes_strides(self, tensor: str) -> bool:
        return ("strides", tensor) in self._read.kinds

    def _is_by_rows(self, tensor: str) -> bool:
        matrix: Matrix = self._named(tensor, matrix_of, *self._axes[tensor])
        return not matrix.is_transposed

    def _compute_value(self, argument: Argument) -> int | str | tuple[int, ...]:
        """Return the value of a computed argument (a size, stride, constant …)."""
        name, kind = argument.name, argument.kind
        if kind == "size":
            return self._sizes[name] * (dtype(self._dtype).itemsize_bytes if argument.type == "bytes" else 1)
        if kind in ("shape", "strides"):
            return self._compute_array(argument)
        if kind == "layout":
            return argument.pair[self._matrices[name].is_transposed]
        if kind == "order":
            return argument.pair[not self._is_by_rows(name)]
        if kind in ("rows", "columns"):
            return int(getattr(self._matrices[name], kind))
        spec = self._require_present(name)
        if kind == "ndim":
            return spec.rank
        if kind == "dtype" and spec.dtype.name not in self._mapping.dtypes:
            raise Gap(f"{self._function} takes a dtype constant, but the mapping's dtypes lack {spec.dtype.name}")
        if kind == "dtype":
            return self._mapping.dtypes[spec.dtype.name]
        if kind in ("increment", "stride"):
            elements = increment_of(self._axes[name][argument.index or 0], argument.allowed)
        else:
            elements = spec.elements if kind == "elements" else self._matrices[name].leading
        return elements * (spec.dtype.itemsize_bytes if "bytes" in argument.type else 1)

    def _compute_array(self, argument: Argument) -> tuple[int, ...]:
        """Return sizes or strides in C's order; missing leading dimensions get the size 1."""
        spec, form = self._in_c_order(argument.name), argument.array or ArrayForm(element="int")
        shape, strides = list(spec.shape), list(strides_of(spec))
        if form.length is not None and spec.rank > form.length:
            raise self._tensor_gap(argument.name, f"has {spec.rank} dimensions, expected {form.length} at most")
        for _ in range((form.length or 0) - spec.rank):
            # The stride that a dense leading dimension of size 1 would have.
            strides.insert(0, max(shape[0], 1) * strides[0] if shape else 1)
            shape.insert(0, 1)
        if form.in_bytes:
            strides = [x * spec.dtype.itemsize_bytes for x in strides]
        numbers = shape if argument.kind == "shape" else strides
        return tuple(reversed(numbers) if form.is_reversed else numbers)

    def _require_present(self, tensor: str) -> TensorSpec:
        if tensor not in self._tensors:
            raise Gap(f"{self._function} needs the layout of {tensor}, which the case omits")
        return self._tensors[tensor]

    def _pointer_offset(self, tensor: str) -> int:
        """Return the pointer's offset in bytes: not 0 for a reversed vector passed by its lowest address."""
        axes = self._axes.get(tensor, ())
        if self._mapping.negative_increments != "lowest" or len(axes) != 1 or axes[0].stride >= 0:
            return 0
        return axes[0].stride * max(axes[0].size - 1, 0) * self._require_present(tensor).dtype.itemsize_bytes

    def _in_c_order(self, tensor: str) -> TensorSpec:
        """Return a tensor with its dimensions in C's order (cached)."""
        if tensor not in self._reordered:
            rule = self.entry.swapped.get(tensor, False)
            self._reordered[tensor] = self._swap_dimensions(self._require_present(tensor), rule)
        return self._reordered[tensor]

    def _swap_dimensions(self, spec: TensorSpec, rule: str | bool | tuple[int, int]) -> TensorSpec:
        """Swap a pair of dimensions (``rule``), or the last two if ``rule`` is true or names a true attribute."""
        last_two = rule if isinstance(rule, bool) else isinstance(rule, str) and bool(self._attributes.get(rule))
        first, second = rule if isinstance(rule, tuple) else (-2, -1) if last_two else (0, 0)
        if first == second or not all(-spec.rank <= dim < spec.rank for dim in (first, second)):
            return spec
        shape, strides = list(spec.shape), list(strides_of(spec))
        for sizes in (shape, strides):
            sizes[first], sizes[second] = sizes[second], sizes[first]
        return TensorSpec(dtype=spec.dtype, shape=tuple(shape), strides=tuple(strides), offset=spec.offset)

    def _named(self, tensor: str, measure: Any, *arguments: Any) -> Any:
        """Call ``measure`` and prefix the tensor's name to the message of its gap."""
        try:
            return measure(*arguments)
        except Gap as gap:
            raise self._tensor_gap(tensor, str(gap)) from None

    def _tensor_gap(self, tensor: str, why: str) -> Gap:
        return Gap(f"{self._function} cannot take {tensor}, which {why}")


def _specs_by_name(specs: Specs) -> dict[str, TensorSpec]:
    return {key.partition(":")[2]: spec for key, spec in specs.items() if spec is not None}


def broadcast_specs(entry: OperatorMapping, specs: Specs) -> dict[str, TensorSpec | None]:
    """Return the specs as they are passed.

    If the entry broadcasts, inputs that fit the first output's shape get it by strides of 0; others stay.
    """
    outputs = [spec for key, spec in specs.items() if key.startswith("output:") and spec is not None]
    if not entry.broadcasts or not outputs:
        return dict(specs)
    return {
        key: _broadcast_spec(spec, outputs[0].shape) if key.startswith("input:") and spec is not None else spec
        for key, spec in specs.items()
    }


def _broadcast_spec(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """Return ``spec`` broadcast to ``shape`` by strides of 0; unchanged if it does not fit."""
    if spec.shape == shape or not reaches(spec.shape, shape):
        return spec
    missing = len(shape) - spec.rank
    sized = zip(spec.shape, strides_of(spec), shape[missing:], strict=True)
    strides = (*[0] * missing, *(stride if old_size == size else 0 for old_size, stride, size in sized))
    return TensorSpec(dtype=spec.dtype, shape=shape, strides=strides, offset=spec.offset)


def unsupported_reason(
    case: TestCase, mapping: LibraryMapping, layouts: Sequence[OutputLayout] = (), request: CallRequest = NO_REQUEST
) -> str | None:
    """Return why no function of the mapping can be called for this case with these output layouts; None if one can."""
    alternatives = mapping.entries(case.descriptor)
    if not alternatives:
        return f"mapping {mapping.name} has no operator {case.descriptor.name}; it has {', '.join(mapping.operators)}"
    why = "" if case.expects_error is None else _why_not_refused(case, mapping, request)
    if why:
        return f"mapping {mapping.name}: {case.descriptor.name} {why}"
    try:
        bound = bind_case(case, mapping, layouts, request)
        if case.expects_error is not None:
            _require_visible_fault(bound, case, request)
    except Gap as gap:
        return f"mapping {mapping.name}: {gap}"
    return None


def _why_not_refused(case: TestCase, mapping: LibraryMapping, request: CallRequest) -> str:
    """Return why no refusal of this wrong call can be expected; empty if one can."""
    if not mapping.status:
        return "cannot refuse a call: the mapping has no status"
    promised = {kind for entry in mapping.entries(case.descriptor) for kind in mapping.promised(entry)}
    mixed = len({argument.spec.dtype for argument in case.inputs}) > 1
    if not request and not promised & {"dtype" if mixed else "shape", "index"}:
        return "is not declared to refuse wrong calls (`refuses: [shape, dtype]`)"
    return ""


def _require_visible_fault(bound: BoundCase, case: TestCase, request: CallRequest) -> None:
    """Raise a gap unless C receives the wrong value, so that it can refuse the call."""
    entry, read, function = bound.entry, bound.entry.read, bound.entry.any_function
    not_described = {arg.name for arg in read.passed if arg.kind == "scalar"}
    not_described |= {start.input for start in entry.starts}  # C receives the outputs that hold them
    named = ((key.partition(":")[2], spec) for key, spec in bound.specs.items() if spec is not None)
    specs = {name: spec for name, spec in named if name not in not_described}
    shared = {name: spec.dtype for name, spec in specs.items() if spec.dtype.name not in entry.dtypes_of.get(name, ())}
    reshaped = [key.partition(":")[2] for key in request.shapes]
    # A case without outputs has a fault in its inputs or attributes; its outputs are valid memory.
    wrong = {
        "shape": reshaped if case.outputs else [argument.name for argument in case.inputs],
        "dtype": shared if request.dtypes or len(set(shared.values())) > 1 else (),
    }
    for kind, tensors in wrong.items():
        for tensor in tensors:
            if tensor in specs and (kind, tensor) not in read.kinds:
                raise Gap(f"{function} does not receive the {kind} of {tensor}, so it cannot refuse it")
    has_workspace = entry.workspace is not None
    for key in request.null:
        has_it = {"handle": read.passes("handle"), "descriptor": bool(entry.objects), "workspace": has_workspace}
        if not has_it.get(key, key != f"output:{entry.returns}"):
            raise Gap(f"{function} takes no {key}")
    for key in request.null_descriptor:
        tensor = key.partition(":")[2]
        if not any(arg.name == tensor and (arg.as_descriptor or arg.as_tensor) for arg in read.passed):
            raise Gap(f"{function} takes no descriptor of {tensor}")
    if request.short_workspace and not has_workspace:
        raise Gap(f"{function} takes no workspace")
