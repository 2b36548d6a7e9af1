"""Positions and masks among the arguments of a call: how far positions reach, and what is wrong with a case by that.

It is read from shapes and fills, without torch, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from optest.operators.shapes import for_each_dim
from optest.spec import Argument, Fault, Interval, Reason, TensorSpec, TestCase
from optest.spec.calls import Call, TensorRef, parse_call
from optest.torch.fact_sheet import facts_of

Shapes = Sequence[TensorSpec]


@dataclass(frozen=True, slots=True)
class Positions:
    """The tensor number ``index`` holds positions in ``what`` from ``low`` up to ``high``, or ``ignored``."""

    index: int
    low: int
    high: int
    what: str
    ignored: int | None = None


def domain(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> Mapping[str, Interval]:
    """The range of every input that holds positions, so that fills without bounds of their own are legal."""
    stated = [each for each in specs if each is not None]
    return {
        f"input{each.index}": Interval(low=float(each.low), high=float(each.high))
        for each in positions_of(attributes["call"], stated)
        if each.high >= each.low
    }


def positions_of(text: str, specs: Shapes) -> list[Positions]:
    """Every tensor of integers in the call that is used as positions."""
    call = parse_call(text)
    find = _WAYS.get(facts_of(call.function).positions)
    if find is None:
        return []
    try:
        return [each for each in find(call, specs) if specs[each.index].dtype.is_integer]
    except (IndexError, KeyError, TypeError, AttributeError):
        return []  # a call with other arguments than it should have: torch says which


_Literal = tuple[int, Positions]


def literals_of(text: str, specs: Shapes) -> list[_Literal]:
    """Every integer in the call that is used as a position, with how far it may reach: in a subscript, or as the index
    of ``select``."""
    call = parse_call(text)
    find = _LITERAL_WAYS.get(facts_of(call.function).literal_positions)
    if find is None:
        return []
    try:
        return list(find(call, specs))
    except (IndexError, KeyError, TypeError, AttributeError):
        return []  # a call with other arguments than it should have: torch says which


def _argument(call: Call, place: int, name: str) -> Any:
    """One that the call cannot do without.

    Raises:
        IndexError: if it is left out.
    """
    return call.kwargs[name] if name in call.kwargs else call.args[place]


def _within(reference: Any, owner: TensorRef, specs: Shapes, dim: int | None) -> Positions:
    shape = specs[owner.index].shape
    if dim is None:
        size, what = prod(shape), f"the {prod(shape)} elements of input{owner.index}"
    else:
        axis = dim % len(shape) if shape else 0
        size = shape[axis] if shape else 1
        what = f"dimension {axis} of input{owner.index}, which has the size {size}"
    return Positions(reference.index, 0, size - 1, what)


def _from_either_end(reference: Any, owner: TensorRef, specs: Shapes, dim: int | None) -> Positions:
    """Raises:
    IndexError: for a dimension that there is not.
    """
    found = _within(reference, owner, specs, dim)
    return replace(found, low=-1 - found.high if dim is None else -specs[owner.index].shape[dim])


def _embedding(call: Call, specs: Shapes) -> Iterator[Positions]:
    """``torch.nn.functional`` takes the positions first, the dispatcher's operator the table."""
    if call.function.startswith("torch.nn.functional."):
        table, positions = _argument(call, 1, "weight"), _argument(call, 0, "input")
    else:
        table, positions = _argument(call, 0, "weight"), _argument(call, 1, "indices")
    yield _within(positions, table, specs, 0)


def _along(call: Call, specs: Shapes) -> Iterator[Positions]:
    owner = _argument(call, 0, "input")
    yield _within(_argument(call, 2, "index"), owner, specs, _argument(call, 1, "dim"))


def _filled_along(call: Call, specs: Shapes) -> Iterator[Positions]:
    """Of those along a dimension the one that counts from the end, too."""
    owner, dim = _argument(call, 0, "input"), _argument(call, 1, "dim")
    yield _from_either_end(_argument(call, 2, "index"), owner, specs, dim if specs[owner.index].shape else None)


def _take(call: Call, specs: Shapes) -> Iterator[Positions]:
    yield _from_either_end(_argument(call, 1, "index"), _argument(call, 0, "input"), specs, None)


def _take_along_dim(call: Call, specs: Shapes) -> Iterator[Positions]:
    yield _within(_argument(call, 1, "indices"), _argument(call, 0, "input"), specs, call.argument(2, "dim"))


def _classes(call: Call, specs: Shapes) -> Iterator[Positions]:
    scores = _argument(call, 0, "input")
    found = _within(_argument(call, 1, "target"), scores, specs, 1 if specs[scores.index].rank > 1 else 0)
    yield replace(found, ignored=call.argument(4, "ignore_index", -100))


def _unpooled(call: Call, specs: Shapes) -> Iterator[Positions]:
    """Positions in a plane of the result: ``output_size``, or what the kernel makes of a plane of the input."""
    axes = int(call.operator[-2])
    is_functional = call.function.startswith("torch.nn.functional.")
    sizes = call.argument(5 if is_functional else 2, "output_size")
    if sizes is None:
        kernel = for_each_dim(_argument(call, 2, "kernel_size"), axes)
        step = for_each_dim(call.argument(3, "stride") or kernel, axes)
        padding = for_each_dim(call.argument(4, "padding") or 0, axes)
        plane = specs[_argument(call, 0, "input").index].shape[-axes:]
        sizes = [(size - 1) * s - 2 * p + k for size, s, p, k in zip(plane, step, padding, kernel, strict=True)]
    yield _in_plane(_argument(call, 1, "indices"), sizes[-axes:])


def _pooled(call: Call, specs: Shapes) -> Iterator[Positions]:
    """Positions in a plane of what was pooled."""
    axes = int(call.operator.partition("pool")[2][0])
    place = 2 if call.operator.startswith("adaptive") else 7
    yield _in_plane(_argument(call, place, "indices"), specs[_argument(call, 1, "self").index].shape[-axes:])


def _in_plane(reference: Any, sizes: Sequence[int]) -> Positions:
    return Positions(reference.index, 0, prod(sizes) - 1, f"a plane of {prod(sizes)} elements")


def _rows(call: Call, _: Shapes) -> Iterator[Positions]:
    rows = _argument(call, 2, "num_weights")
    yield Positions(_argument(call, 1, "indices").index, 0, rows - 1, f"a table of {rows} rows")


def _one_hot(call: Call, _: Shapes) -> Iterator[Positions]:
    classes = call.argument(1, "num_classes", -1)
    if isinstance(classes, int) and classes > 0:
        yield Positions(_argument(call, 0, "tensor").index, 0, classes - 1, f"{classes} classes")


def _subscripts(call: Call, specs: Shapes) -> Iterator[Positions]:
    owner = call.args[0]
    for dim, part in _parts(call, specs):
        if isinstance(part, TensorRef) and specs[part.index].dtype.is_integer:
            yield _from_either_end(part, owner, specs, dim)


def _in_subscripts(call: Call, specs: Shapes) -> Iterator[_Literal]:
    for dim, part in _parts(call, specs):
        for value in _leaves(part):
            if type(value) is int:
                yield value, _from_either_end(call.args[0], call.args[0], specs, dim)


def _selected(call: Call, specs: Shapes) -> Iterator[_Literal]:
    owner, value = _argument(call, 0, "input"), _argument(call, 2, "index")
    if type(value) is int:
        yield value, _from_either_end(owner, owner, specs, _argument(call, 1, "dim"))


def _parts(call: Call, specs: Shapes) -> Iterator[tuple[int, Any]]:
    """What stands in a subscript of a tensor, each with the dimension that it takes; nothing where a bool does."""
    owner, key = call.args[0], call.args[1]
    if not isinstance(owner, TensorRef):
        return
    rank = len(specs[owner.index].shape)
    is_one_list = isinstance(key, list) and all(type(each) is int for each in _leaves(key))  # x[[0, 2]] is of one dim
    parts = list(key) if isinstance(key, (tuple, list)) and not is_one_list else [key]
    if any(isinstance(each, bool) for each in _leaves(parts)):
        return
    taken = sum(_dimensions_of(part, specs) for part in parts)
    dim = 0
    for part in parts:
        if part is Ellipsis:
            dim += rank - taken
        else:
            yield dim, part
            dim += _dimensions_of(part, specs)


def _leaves(part: Any) -> Iterator[Any]:
    """What lists and tuples hold, however they nest."""
    if isinstance(part, (list, tuple)):
        for each in part:
            yield from _leaves(each)
    else:
        yield part


def _dimensions_of(part: Any, specs: Shapes) -> int:
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, TensorRef) and not specs[part.index].dtype.is_integer:
        return specs[part.index].rank  # a mask
    return 1


def _index(call: Call, specs: Shapes) -> Iterator[Positions]:
    """``aten.index`` and ``index_put``: one tensor, or None, for each dimension."""
    dim = 0
    for part in call.args[1]:
        if part is not None and specs[part.index].dtype.is_integer:
            yield _from_either_end(part, call.args[0], specs, dim)
        dim += 1 if part is None else max(1, _dimensions_of(part, specs))


_WAYS: Mapping[str, Callable[[Call, Shapes], Iterator[Positions]]] = {
    "rows": _embedding,
    "rows stated": _rows,
    "along": _along,
    "along from either end": _filled_along,
    "along or all": _take_along_dim,
    "all elements": _take,
    "classes": _classes,
    "classes of a gradient": lambda call, specs: _classes(replace(call, args=call.args[1:]), specs),
    "classes stated": _one_hot,
    "plane of the result": _unpooled,
    "plane of the input": _pooled,
    "subscript": _subscripts,
    "dimensions": _index,
}
_LITERAL_WAYS: Mapping[str, Callable[[Call, Shapes], Iterator[_Literal]]] = {
    "subscript": _in_subscripts,
    "index": _selected,
}


# What is seen to be wrong with a case before anything is computed: positions out of range, masks without effect.


def require_legal_positions(case: TestCase) -> None:
    """Raise where a fill, or the call itself, states positions past the end of what they are positions in.

    Raises:
        Fault: BAD_CASE.
    """
    if case.expects_error is not None:
        return
    for value, reach in literals_of(case.attributes["call"], [argument.spec for argument in case.inputs]):
        if not reach.low <= value <= reach.high:
            raise Fault(
                Reason.BAD_CASE,
                f"the call states the position {value} in {reach.what}; "
                f"state {reach.low} to {reach.high}, or expects_error if it should be refused",
            )
    if case.generator is not None:
        return
    for each in positions_of(case.attributes["call"], [argument.spec for argument in case.inputs]):
        # What is empty has no position at all.
        if each.high < max(each.low, 0) and case.inputs[each.index].spec.elements:
            raise Fault(
                Reason.BAD_CASE,
                f"input{each.index} holds positions in {each.what}, but there are none; "
                "give it no elements, or the other one some",
            )
        largest, smallest = _reach(case.inputs[each.index], each)
        if largest is not None and largest > each.high:
            raise Fault(Reason.BAD_CASE, _message(each, case, largest))
        if smallest is not None and smallest < each.low:
            raise Fault(Reason.BAD_CASE, _message(each, case, smallest))


def _message(positions: Positions, case: TestCase, value: int) -> str:
    fill = case.inputs[positions.index].fill
    low = f"low: {positions.low} and " if value < positions.low else ""
    return (
        f"input{positions.index} is filled by {fill}, which reaches {value}, but holds positions in {positions.what}; "
        f"state {low}high: {positions.high + 1}"
    )


def _reach(argument: Argument, positions: Positions) -> tuple[int | None, int | None]:
    """The largest and smallest value that the fill states, None where it leaves that open."""
    kind, stated = argument.fill.kind, argument.fill.parameters
    if argument.spec.elements == 0:
        return None, None
    if kind in ("zeros", "ones"):
        return (int(kind == "ones"),) * 2
    if kind == "randint":
        high, low = stated.get("high"), stated.get("low")
        return (None if high is None else int(high) - 1), (None if low is None else int(low))
    if kind == "full":
        return (int(stated["value"]),) * 2 if isinstance(stated["value"], (int, float)) else (None, None)
    if kind == "data":
        numbers = [each for each in _leaves(stated["values"]) if isinstance(each, (int, float))]
        values = [each for each in numbers if each != positions.ignored]
        return (int(max(values)), int(min(values))) if values else (None, None)
    if kind == "arange":
        last = stated.get("start", 0) + (argument.spec.elements - 1) * stated.get("step", 1)
        return int(last), None
    return None, None


# Masks that choose nothing, seen before anything is computed: what they make of a call shows nothing.


def require_chosen_elements(case: TestCase) -> None:
    """Raise where a mask is False everywhere.

    An attention has one right result all the same, zeros for each query without a key, so its masks are not looked at.

    Raises:
        Fault: BAD_CASE.
    """
    if case.expects_error is not None or case.generator is not None:
        return
    call = parse_call(case.attributes["call"])
    for index in masks_of(call, [argument.spec for argument in case.inputs]):
        argument = case.inputs[index]
        if argument.spec.elements and _is_nowhere(argument):
            raise Fault(
                Reason.BAD_CASE,
                f"input{index} is filled by {argument.fill} and is the mask of {call.function}, but is False "
                "everywhere, so that the call changes and chooses nothing; draw it by rand, which gives both values, "
                "or write it as data",
            )


def masks_of(call: Call, specs: list[TensorSpec]) -> list[int]:
    """The inputs of bool that choose elements in this call."""
    found = [each.index for each in _candidates(call) if isinstance(each, TensorRef)]
    return [index for index in found if specs[index].dtype.name == "bool"]


def _candidates(call: Call) -> Iterator[Any]:
    match facts_of(call.function).mask:
        case "argument":
            yield call.argument(1, "mask")
        case "subscript" if len(call.args) > 1:
            yield from call.args[1] if isinstance(call.args[1], (list, tuple)) else [call.args[1]]


def _is_nowhere(argument: Argument) -> bool:
    """Whether the fill states that no element is True."""
    kind, stated = argument.fill.kind, argument.fill.parameters
    if kind == "data":
        return not any(map(float, _leaves(stated["values"])))  # numbers, or text that spells one: ``-inf``
    if kind == "randint":
        return stated.get("high") is not None and int(stated["high"]) <= 1 and int(stated.get("low") or 0) == 0
    return kind == "zeros" or (kind == "full" and not float(stated["value"]))
