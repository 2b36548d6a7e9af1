"""One call of torch made on given tensors: what it yields as a flat list, and which of its inputs it writes into."""

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
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, constant, find
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.fact_sheet import facts_of, is_known_by_schema
from optest.torch.facts import ChangedInputs
from optest.torch.tensors import copied

CPU, _META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A call of torch: the function, the arguments, and the inputs that it changes."""

    call: Call
    function: Callable[..., Any]
    mutates: tuple[int, ...]
    beside: tuple[int, ...] = ()
    """Those of them that are no result of it, such as running statistics; they stand last among them."""

    into: tuple[int, ...] = ()
    """Inputs that it is given to put its results into, which it returns: ``out=``."""

    constant: tuple[int, ...] = ()
    """Inputs that torch takes no gradient of though they are floating: running statistics."""

    @property
    def changes(self) -> tuple[int, ...]:
        """All inputs that the call writes into."""
        return (*self.mutates, *self.into)

    @property
    def is_for_the_host(self) -> bool:
        """Whether the call itself puts its result on the CPU: by name, or as it has neither a device nor a tensor."""
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
        """The call on these tensors, ready to be made: whatever it returns, then the inputs that it changed.

        Devices in the call are ``device``, save the CPU; ``dtypes`` are put in the place of others.
        """
        args, kwargs = self.call.mapped(lambda value: _live(value, tensors, device, dtypes or {}))
        function = in_float64(self.call.function, self.function) if dtypes else self.function
        changed = [tensors[index] for index in self.mutates]

        def make() -> list[Any]:
            return [*leaves_of(function(*args, **kwargs)), *changed]

        return make

    def on_copies(
        self, device: torch.device = CPU, *, dtypes: Mapping[torch.dtype, torch.dtype] | None = None
    ) -> Callable[..., list[Any]]:
        """What makes the call on the tensors that it gets, on copies of those that it changes."""

        def make(*given: torch.Tensor) -> list[Any]:
            return self.on(self.changeable(given), device, dtypes=dtypes)()

        return make

    def without_values(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """What the call yields for tensors of these dtypes and layouts, told without computing: on ``meta``."""
        meta = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=_META) for each in tensors]
        return self.on(meta, _META)()

    def changeable(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors, copies of those that the call changes: in memory of their own with the same strides."""
        return [_of_its_own(each) if index in self.changes else each for index, each in enumerate(tensors)]


def _of_its_own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if tensor.is_contiguous() else copied(tensor)  # torch differentiates a clone


class OperatorsSeen(DispatchMode):
    """The operators that reach a kernel of torch while inside; the item of a list of tensors does not."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


@lru_cache(maxsize=4096)
def torch_call(text: str) -> TorchCall:
    """Read a call.

    Raises:
        NotLiteral: if the text is none.
        NoSuchCallable, NotAnOperator: for its function.
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
    also_changed, statistics = (written_beside(call), ()) if known is None else _also_changed(call, known)
    named = set(call.tensors())
    beside = tuple(sorted(({*also_changed} - changed - set(into)) & named))
    return TorchCall(call, find(call.function), (*sorted(changed & named), *beside), beside, into, statistics)


def _also_changed(call: Call, known: ChangedInputs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The inputs that the call changes beside its result: running statistics in training, weights that are clipped; and
    the statistics that it reads, or changes without a gradient."""
    try:
        given = named_arguments(call)
    except CannotBind:
        return (), ()
    found = tuple(given[name].index for name in known.inputs if isinstance(given.get(name), TensorRef))
    is_asked = given.get(known.asks, known.default) not in (False, None)
    return found if is_asked else (), found if known.are_statistics else ()


def leaves_of(returned: Any) -> list[Any]:
    """Tensors and scalars in the order in which tuples, lists and dicts hold them; None is nothing."""
    leaves, _ = pytree.tree_flatten(returned)
    return [leaf for leaf in leaves if leaf is not None]


def _live(
    value: Any, tensors: Sequence[torch.Tensor], device: torch.device, dtypes: Mapping[torch.dtype, torch.dtype]
) -> Any:
    kind = type(value)
    if kind is TensorRef:
        return tensors[value.index]
    if kind is TorchName:
        found = constant(value.name)
        return dtypes.get(found, found) if isinstance(found, torch.dtype) else found
    if kind is Device:
        is_host = value.name.startswith("cpu") and device.type != "meta"
        return CPU if is_host else device
    return value


def values_of_call(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A value that torch is given, in the types of :mod:`optest.spec.calls`: constants of torch by their names.

    ``leaf`` makes what stands in the place of anything else.
    """
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return TorchName(str(value))
    if isinstance(value, (np.number, np.bool_)):
        return value.item()
    if isinstance(value, slice):
        return slice(*[values_of_call(each, leaf) for each in (value.start, value.stop, value.step)])
    if isinstance(value, (list, tuple)):
        several = [values_of_call(each, leaf) for each in value]
        return several if isinstance(value, list) else tuple(several)
    return leaf(value)


# Which inputs a call writes into, beside what its name says: ``out=``, and what the schema of an operator declares.


def written_results(call: Call) -> tuple[int, ...]:
    """The inputs that the call is given to put its results into, and returns: ``out=input2``."""
    schema = _schema(call)
    if schema is not None:
        found = [index for each, value in _given(call, schema) if each.is_out for index in _tensors_in(value)]
        return tuple(found) if schema.returns else ()
    return tuple(_tensors_in(call.kwargs.get("out")))


def written_beside(call: Call) -> tuple[int, ...]:
    """The inputs that an operator's schema says it writes into, but for the results that it returns."""
    schema = _schema(call)
    if schema is None:
        return ()
    results = written_results(call)
    return tuple(
        index
        for each, value in _given(call, schema)
        if each.alias_info is not None and each.alias_info.is_write
        for index in _tensors_in(value)
        if index not in results
    )


def _schema(call: Call) -> Any:
    """The schema of an operator of ``torch.ops`` that the arguments fit, None of any other function."""
    name = call.function
    if not name.startswith("torch.ops."):
        word = canonical(name).word
        if not is_known_by_schema(word):
            return None
        name = f"torch.ops.aten.{word}"
    try:
        found: Any = find(name)
    except (NoSuchCallable, NotAnOperator):
        return None
    if isinstance(found, torch._ops.OpOverload):
        return found._schema
    if not isinstance(found, torch._ops.OpOverloadPacket):
        return None
    return schema_that_takes(call, found)


def _given(call: Call, schema: Any) -> Iterator[tuple[Any, Any]]:
    """Every argument that the call states, with its value."""
    positional = [each for each in schema.arguments if not each.kwarg_only]
    yield from zip(positional, call.args, strict=False)
    yield from ((each, call.kwargs[each.name]) for each in schema.arguments if each.name in call.kwargs)


def _tensors_in(value: Any) -> list[int]:
    """The inputs that a value is, or holds in lists and tuples."""
    return Call("", (value,)).tensors()


# Functions that torch has in 32 and 16 bits alone, made of others here, so that float64 is their truth, too.

_NAMES = {"self": "one", "input": "one", "mat_a": "one", "mat2": "other", "mat_b": "other"}


def in_float64(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """What computes ``function`` of that name in float64: itself, where torch has it there."""
    return _grouped_mm if facts_of(name).terms == "product of groups" else function


def _grouped_mm(*args: Any, **named: Any) -> torch.Tensor:
    """The product of each group; ``offs`` are the ends of groups in the dimension that the operands have no groups for.

    Raises:
        Fault: BAD_CASE where they do not ascend, UNSUPPORTED for a bias, and where elements of the result belong to no
            group, into which torch writes nothing.
    """
    named = {_NAMES.get(name, name): value for name, value in named.items()}
    given = dict(zip(("one", "other", "offs", "bias"), args, strict=False)) | named
    one, other, offs = given["one"], given["other"], given.get("offs")
    if given.get("bias") is not None:
        raise Fault(Reason.UNSUPPORTED, "the product of groups is known here without a bias alone")
    if offs is None:
        return one @ other
    groups = list(pairwise([0, *offs.tolist()]))
    if any(begin > end for begin, end in groups):
        raise Fault(Reason.BAD_CASE, "the ends of groups have to ascend")
    if one.dim() == other.dim():
        return torch.stack([one[:, begin:end] @ other[begin:end] for begin, end in groups])
    if groups[-1][1] != (one.shape[0] if one.dim() == 2 else other.shape[1]):
        raise Fault(Reason.UNSUPPORTED, "the groups end before the operand does, and torch writes nothing behind them")
    if one.dim() == 2:
        return torch.cat([one[begin:end] @ other[group] for group, (begin, end) in enumerate(groups)])
    return torch.cat([one[group] @ other[:, begin:end] for group, (begin, end) in enumerate(groups)], dim=1)


# Python numbers among the arguments: operands, and the factors ``alpha`` and ``beta``.
#
# Torch rounds an operand to the dtype that it computes in, which is part of what it promises. ``x * 1.702`` with x of
# float32 is x times the float32 that is nearest to 1.702, and for 16-bit x, too, torch computes in float32. A reference
# in float64 that took 1.702 itself would find the right answer wrong by more than a rounding.


def with_rounded_scalars(call: TorchCall, inputs: Sequence[Any]) -> TorchCall:
    """The call with numbers in float32, if that is what its tensors make torch compute in."""
    if not any(isinstance(value, (float, complex)) for value in call.call.values()):
        return call
    if not facts_of(call.call.function).scalars:
        return call
    floating = [each for each in (dtype_of(array.dtype) for array in inputs) if each.is_inexact]
    if not floating or any(each.name not in _FLOAT32 for each in floating):
        return call
    args, kwargs = call.call.mapped(_rounded)
    return replace(call, call=Call(call.call.function, tuple(args), kwargs))


_FLOAT32 = ("float32", "float16", "bfloat16", "complex64")


def _rounded(value: Any) -> Any:
    if type(value) is complex:
        return complex(_rounded(value.real), _rounded(value.imag))
    if type(value) is not float:
        return value
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if np.isfinite(rounded) else value


# ``torch.addmm(c, a, b, beta=2, alpha=-0.5)`` is β·c + α·a·b. The error terms of such a sum are made by the call
# itself, on magnitudes, squares and ones. The factors are in every term, so they become such, too.
_FACTORS = ("alpha", "beta")


def with_alpha_beta_to_power(call: TorchCall, power: int) -> TorchCall:
    """The call with ``|factor| ** power`` in the place of each factor; 0 counts terms."""
    if not any(name in call.call.kwargs for name in _FACTORS):
        return call
    kwargs: dict[str, Any] = {
        name: abs(value) ** power if name in _FACTORS and isinstance(value, (int, float, complex)) else value
        for name, value in call.call.kwargs.items()
    }
    return replace(call, call=replace(call.call, kwargs=kwargs))
