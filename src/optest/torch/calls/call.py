"""A torch call that can be executed on tensors: flat results, and the inputs that it writes into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from optest.numerics import dtype_of
from optest.spec import Fault, Reason
from optest.spec.call_names import canonical
from optest.spec.calls import Call, Device, TensorRef, TorchName, parse_call
from optest.torch.calls.binding import CannotBind, named_arguments, schema_that_takes
from optest.torch.calls.descriptors import descriptor_of
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, constant, find_callable
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.fact_sheet import facts_of, is_known_by_schema
from optest.torch.facts import ChangedInputs
from optest.torch.tensors import strided_copy

CPU, _META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A parsed call, its function, and the numbers of inputs with a special role.

    ``mutates`` are inputs that it writes into and that count as outputs; ``beside`` are the last of these, which are no
    result, such as running statistics. ``into`` are inputs that receive its results (``out=``). ``constant`` are
    floating inputs without a gradient, such as running statistics.
    """

    call: Call
    function: Callable[..., Any]
    mutates: tuple[int, ...]
    beside: tuple[int, ...] = ()
    into: tuple[int, ...] = ()
    constant: tuple[int, ...] = ()

    @property
    def changes(self) -> tuple[int, ...]:
        """Numbers of all inputs that the call writes into."""
        return (*self.mutates, *self.into)

    @property
    def is_for_the_host(self) -> bool:
        """Return whether the call puts its result on the CPU: by a device argument, or without a device and tensors."""
        devices = [value for value in self.call.values() if isinstance(value, Device)]
        if not devices:
            return not self.call.tensors()
        return any(value.name.startswith("cpu") for value in devices)

    def on(
        self,
        tensors: Sequence[torch.Tensor],
        device: torch.device = CPU,
        *,
        dtypes: Mapping[torch.dtype, torch.dtype] | None = None,
    ) -> Callable[[], list[Any]]:
        """Return a function that executes the call on these tensors and lists its results, then ``mutates``.

        Replace devices in the call other than the CPU by ``device``, and dtypes by those that ``dtypes`` maps them to.
        """
        args, kwargs = self.call.mapped(lambda value: _bound_value(value, tensors, device, dtypes or {}))
        function = in_float64(self.call.function, self.function) if dtypes else self.function
        changed = [tensors[index] for index in self.mutates]

        def execute() -> list[Any]:
            return [*leaves_of(function(*args, **kwargs)), *changed]

        return execute

    def on_copies(
        self, device: torch.device = CPU, *, dtypes: Mapping[torch.dtype, torch.dtype] | None = None
    ) -> Callable[..., list[Any]]:
        """Return a function of tensors that executes the call, on copies of the tensors that it changes."""
        return lambda *tensors: self.on(self.changeable(tensors), device, dtypes=dtypes)()

    def without_values(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Execute the call on the meta device, for tensors of these dtypes and strides."""
        meta = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=_META) for t in tensors]
        return self.on(meta, _META)()

    def changeable(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors, with copies of the same strides for those that the call changes."""
        # torch differentiates through clone(), but not through copied().
        return [
            tensor if index not in self.changes else tensor.clone() if tensor.is_contiguous() else strided_copy(tensor)
            for index, tensor in enumerate(tensors)
        ]


class OperatorsSeen(DispatchMode):
    """Context manager that lists in ``operators`` those that reach torch's dispatcher within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


@lru_cache(maxsize=4096)
def torch_call(text: str) -> TorchCall:
    """Parse a call, look up its function, and determine the inputs that it writes into.

    Raises:
        NotLiteral: if the text is no call.
        NoSuchCallable, NotAnOperator: if torch has no such function, or it is no operator.
    """
    call = parse_call(text)
    for value in call.values():
        if type(value) is TorchName:
            constant(value.name)
    changed = {int(name.removeprefix("input")) for name in descriptor_of(call.function).mutates}
    if call.kwargs.get("inplace") is True and call.args and isinstance(call.args[0], TensorRef):
        changed.add(call.args[0].index)
    into = written_results(call)
    known = facts_of(call.function).changed
    also_changed, statistics = (written_beside(call), ()) if known is None else _changed_statistics(call, known)
    named = set(call.tensors())
    beside = tuple(sorted(({*also_changed} - changed - set(into)) & named))
    return TorchCall(call, find_callable(call.function), (*sorted(changed & named), *beside), beside, into, statistics)


def _changed_statistics(call: Call, known: ChangedInputs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the inputs that the call changes in addition to its result, and those that have no gradient.

    Changed inputs are running statistics in training or clipped weights; statistics never have a gradient.
    """
    try:
        arguments = named_arguments(call)
    except CannotBind:
        return (), ()
    indices = tuple(arguments[name].index for name in known.inputs if isinstance(arguments.get(name), TensorRef))
    is_requested = arguments.get(known.argument, known.default) not in (False, None)
    return indices if is_requested else (), indices if known.are_statistics else ()


def leaves_of(returned: Any) -> list[Any]:
    """Return the tensors and scalars in nested tuples, lists and dicts, in order, without None."""
    leaves, _ = pytree.tree_flatten(returned)
    return [leaf for leaf in leaves if leaf is not None]


def _bound_value(
    value: Any, tensors: Sequence[torch.Tensor], device: torch.device, dtypes: Mapping[torch.dtype, torch.dtype]
) -> Any:
    """Replace references, torch names and devices by tensors, constants (dtypes mapped) and the device or CPU."""
    kind = type(value)
    if kind is TensorRef:
        return tensors[value.index]
    if kind is TorchName:
        known = constant(value.name)
        return dtypes.get(known, known) if isinstance(known, torch.dtype) else known
    if kind is Device:
        is_host = value.name.startswith("cpu") and device.type != "meta"
        return CPU if is_host else device
    return value


def values_of_call(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Convert an argument of a torch call to the types of :mod:`optest.spec.calls`, with ``leaf`` for other values.

    Constants of torch become TorchName; lists, tuples and slices are converted recursively.
    """
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return TorchName(str(value))
    if isinstance(value, (np.number, np.bool_)):
        return value.item()
    if isinstance(value, slice):
        return slice(*[values_of_call(part, leaf) for part in (value.start, value.stop, value.step)])
    if isinstance(value, (list, tuple)):
        parts = [values_of_call(part, leaf) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    return leaf(value)


def written_results(call: Call) -> tuple[int, ...]:
    """Return the numbers of the inputs that receive the call's results, as in ``out=input2``."""
    schema = _schema(call)
    if schema is not None:
        arguments = _bound_arguments(call, schema)
        indices = [index for argument, value in arguments if argument.is_out for index in _tensors_in(value)]
        return tuple(indices) if schema.returns else ()
    return tuple(_tensors_in(call.kwargs.get("out")))


def written_beside(call: Call) -> tuple[int, ...]:
    """Return the numbers of the inputs that the operator's schema declares written, without ``out=`` inputs."""
    schema = _schema(call)
    if schema is None:
        return ()
    results = written_results(call)
    return tuple(
        index
        for argument, value in _bound_arguments(call, schema)
        if argument.alias_info is not None and argument.alias_info.is_write
        for index in _tensors_in(value)
        if index not in results
    )


def _schema(call: Call) -> Any:
    """Return the schema of a ``torch.ops`` operator, or of the aten operator of a function whose fact sheet requests
    it, that accepts the arguments; None for other functions.
    """
    name = call.function
    if not name.startswith("torch.ops."):
        word = canonical(name).word
        if not is_known_by_schema(word):
            return None
        name = f"torch.ops.aten.{word}"
    try:
        operator: Any = find_callable(name)
    except (NoSuchCallable, NotAnOperator):
        return None
    if isinstance(operator, torch._ops.OpOverload):
        return operator._schema
    if not isinstance(operator, torch._ops.OpOverloadPacket):
        return None
    return schema_that_takes(call, operator)


def _bound_arguments(call: Call, schema: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each schema argument that the call passes, with its value."""
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    yield from zip(positional, call.args, strict=False)
    yield from ((argument, call.kwargs[argument.name]) for argument in schema.arguments if argument.name in call.kwargs)


def _tensors_in(value: Any) -> list[int]:
    return Call("", (value,)).tensors()


# torch has grouped_mm in 16 and 32 bits only: its reference in float64 is composed of matrix products.

_NAMES = {"self": "left", "input": "left", "mat_a": "left", "mat2": "right", "mat_b": "right"}


def in_float64(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an equivalent of ``function`` that supports float64: the function itself, except for ``grouped_mm``."""
    return _grouped_mm if facts_of(name).terms == "product of groups" else function


def _grouped_mm(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Multiply each group of two operands; ``offs`` are the ends of groups in the dimension that is not batched.

    Raises:
        Fault: BAD_CASE if ``offs`` descend; UNSUPPORTED for a bias, and for elements outside of all groups, which torch
            leaves unwritten.
    """
    named = {_NAMES.get(name, name): value for name, value in kwargs.items()}
    arguments = dict(zip(("left", "right", "offs", "bias"), args, strict=False)) | named
    left, right, offs = arguments["left"], arguments["right"], arguments.get("offs")
    if arguments.get("bias") is not None:
        raise Fault(Reason.UNSUPPORTED, "the reference of grouped_mm supports no bias")
    if offs is None:
        return left @ right
    groups = list(pairwise([0, *offs.tolist()]))
    if any(begin > end for begin, end in groups):
        raise Fault(Reason.BAD_CASE, f"offs is {offs.tolist()}, expected ascending ends of groups")
    if left.dim() == right.dim():
        return torch.stack([left[:, begin:end] @ right[begin:end] for begin, end in groups])
    size = left.shape[0] if left.dim() == 2 else right.shape[1]
    if groups[-1][1] != size:
        message = (
            f"the last group ends at {groups[-1][1]}, expected {size}: torch leaves the elements behind it unwritten"
        )
        raise Fault(Reason.UNSUPPORTED, message)
    if left.dim() == 2:
        return torch.cat([left[begin:end] @ right[group] for group, (begin, end) in enumerate(groups)])
    return torch.cat([left[group] @ right[:, begin:end] for group, (begin, end) in enumerate(groups)], dim=1)


# torch rounds a Python number to the dtype that it computes in: ``x * 1.702`` with x in float32, float16 or bfloat16 is
# x times the float32 nearest to 1.702. A float64 reference with 1.702 itself would be off by more than a rounding.
_FLOAT32 = ("float32", "float16", "bfloat16", "complex64")


def with_rounded_scalars(call: TorchCall, inputs: Sequence[Any]) -> TorchCall:
    """Return the call with its Python floats rounded to float32, if torch computes it in float32; else unchanged."""
    if not any(isinstance(value, (float, complex)) for value in call.call.values()):
        return call
    if not facts_of(call.call.function).scalars:
        return call
    floating = [entry for entry in (dtype_of(array.dtype) for array in inputs) if entry.is_inexact]
    if not floating or any(entry.name not in _FLOAT32 for entry in floating):
        return call
    args, kwargs = call.call.mapped(_rounded_to_float32)
    return replace(call, call=Call(call.call.function, tuple(args), kwargs))


def _rounded_to_float32(value: Any) -> Any:
    if type(value) is complex:
        return complex(_rounded_to_float32(value.real), _rounded_to_float32(value.imag))
    if type(value) is not float:
        return value
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if np.isfinite(rounded) else value


# ``torch.addmm(c, a, b, beta=2, alpha=-0.5)`` is β·c + α·a·b. Its error terms are computed by the call itself on
# magnitudes, squares and ones; the factors are in every term and have to be converted, too.
_FACTORS = ("alpha", "beta")


def with_alpha_beta_to_power(call: TorchCall, power: int) -> TorchCall:
    """Return the call with each factor replaced by ``|factor| ** power``; with power 0 it counts terms."""
    if not any(name in call.call.kwargs for name in _FACTORS):
        return call
    kwargs: dict[str, Any] = {
        name: abs(value) ** power if name in _FACTORS and isinstance(value, (int, float, complex)) else value
        for name, value in call.call.kwargs.items()
    }
    return replace(call, call=replace(call.call, kwargs=kwargs))
