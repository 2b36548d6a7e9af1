"""Which tensors of a call are positions in another one, and how far they may reach: read from shapes, without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from optest.spec import Interval, TensorSpec
from optest.spec.calls import Call, TensorRef, parse_call
from optest.torch.fact_sheet import facts_of

__all__ = ["Literal", "Positions", "domain", "literals_of", "parsed", "positions_of"]

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
    call = parsed(text)
    find = _WAYS.get(facts_of(call.function).positions)
    if find is None:
        return []
    try:
        return [each for each in find(call, specs) if specs[each.index].dtype.is_integer]
    except (IndexError, KeyError, TypeError, AttributeError):
        return []  # a call with other arguments than it should have: torch says which


@dataclass(frozen=True, slots=True)
class Literal:
    """A position that is written out in the call, and how far it may reach."""

    value: int
    low: int
    high: int
    what: str


def literals_of(text: str, specs: Shapes) -> list[Literal]:
    """Every integer in the call that is used as a position: in a subscript, or as the index of ``select``."""
    call = parsed(text)
    find = _LITERAL_WAYS.get(facts_of(call.function).literal_positions)
    if find is None:
        return []
    try:
        return list(find(call, specs))
    except (IndexError, KeyError, TypeError, AttributeError):
        return []  # a call with other arguments than it should have: torch says which


@lru_cache(maxsize=4096)
def parsed(text: str) -> Call:
    """:func:`parse_call`, remembered, since many cases make the same call of other tensors."""
    return parse_call(text)


def _argument(call: Call, place: int, name: str) -> Any:
    return call.kwargs[name] if name in call.kwargs else call.args[place]


def _within(reference: Any, owner: TensorRef, specs: Shapes, dim: int | None, *, low: int | None = None) -> Positions:
    shape = specs[owner.index].shape
    if dim is None:
        size, what = prod(shape), f"the {prod(shape)} elements of input{owner.index}"
    else:
        axis = dim % len(shape) if shape else 0
        size = shape[axis] if shape else 1
        what = f"dimension {axis} of input{owner.index}, which has the size {size}"
    return Positions(reference.index, 0 if low is None else low, size - 1, what)


def _embedding(call: Call, specs: Shapes) -> Iterator[Positions]:
    table, positions = _table_and_positions(call)
    yield _within(positions, table, specs, 0)


def _table_and_positions(call: Call) -> tuple[Any, Any]:
    """``torch.nn.functional`` takes the positions first, the dispatcher's operator the table."""
    if call.function.startswith("torch.nn.functional."):
        return _argument(call, 1, "weight"), _argument(call, 0, "input")
    return _argument(call, 0, "weight"), _argument(call, 1, "indices")


def _along(call: Call, specs: Shapes) -> Iterator[Positions]:
    owner = _argument(call, 0, "input")
    yield _within(_argument(call, 2, "index"), owner, specs, _argument(call, 1, "dim"))


def _filled_along(call: Call, specs: Shapes) -> Iterator[Positions]:
    """Of those along a dimension the one that counts from the end, too."""
    owner, dim = _argument(call, 0, "input"), _argument(call, 1, "dim")
    shape = specs[owner.index].shape
    yield _within(_argument(call, 2, "index"), owner, specs, dim, low=-shape[dim] if shape else -1)


def _take(call: Call, specs: Shapes) -> Iterator[Positions]:
    owner = _argument(call, 0, "input")
    size = prod(specs[owner.index].shape)
    yield _within(_argument(call, 1, "index"), owner, specs, None, low=-size)


def _take_along_dim(call: Call, specs: Shapes) -> Iterator[Positions]:
    dim = call.kwargs.get("dim", call.args[2] if len(call.args) > 2 else None)
    yield _within(_argument(call, 1, "indices"), _argument(call, 0, "input"), specs, dim)


def _classes(call: Call, specs: Shapes) -> Iterator[Positions]:
    scores = _argument(call, 0, "input")
    found = _within(_argument(call, 1, "target"), scores, specs, 1 if specs[scores.index].rank > 1 else 0)
    yield replace(found, ignored=call.kwargs.get("ignore_index", call.args[4] if len(call.args) > 4 else -100))


def _classes_behind_a_gradient(call: Call, specs: Shapes) -> Iterator[Positions]:
    yield from _classes(replace(call, args=call.args[1:]), specs)


def _unpooled(call: Call, specs: Shapes) -> Iterator[Positions]:
    """Positions in a plane of the result: ``output_size``, or what the kernel makes of a plane of the input."""
    axes = int(call.operator[-2])
    is_functional = call.function.startswith("torch.nn.functional.")
    sizes = _given(call, 5 if is_functional else 2, "output_size")
    if sizes is None:
        kernel = _each(_argument(call, 2, "kernel_size"), axes)
        step = _each(_given(call, 3, "stride") or kernel, axes)
        padding = _each(_given(call, 4, "padding") or 0, axes)
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


def _given(call: Call, place: int, name: str) -> Any:
    return call.kwargs.get(name, call.args[place] if len(call.args) > place else None)


def _each(value: Any, axes: int) -> Sequence[int]:
    return value if isinstance(value, (list, tuple)) else [value] * axes


def _rows(call: Call, _: Shapes) -> Iterator[Positions]:
    rows = _argument(call, 2, "num_weights")
    yield Positions(_argument(call, 1, "indices").index, 0, rows - 1, f"a table of {rows} rows")


def _one_hot(call: Call, _: Shapes) -> Iterator[Positions]:
    classes = call.kwargs.get("num_classes", call.args[1] if len(call.args) > 1 else -1)
    if isinstance(classes, int) and classes > 0:
        yield Positions(_argument(call, 0, "tensor").index, 0, classes - 1, f"{classes} classes")


def _subscripts(call: Call, specs: Shapes) -> Iterator[Positions]:
    owner = call.args[0]
    for dim, part in _parts(call, specs):
        if isinstance(part, TensorRef) and specs[part.index].dtype.is_integer:
            yield _within(part, owner, specs, dim, low=-specs[owner.index].shape[dim])


def _in_subscripts(call: Call, specs: Shapes) -> Iterator[Literal]:
    for dim, part in _parts(call, specs):
        for value in _integers(part):
            yield _literal(value, call.args[0], specs, dim)


def _selected(call: Call, specs: Shapes) -> Iterator[Literal]:
    owner, value = _argument(call, 0, "input"), _argument(call, 2, "index")
    if type(value) is int:
        yield _literal(value, owner, specs, _argument(call, 1, "dim"))


def _literal(value: int, owner: TensorRef, specs: Shapes, dim: int) -> Literal:
    reach = _within(owner, owner, specs, dim, low=-specs[owner.index].shape[dim])
    return Literal(value, reach.low, reach.high, reach.what)


def _integers(part: Any) -> Iterator[int]:
    if isinstance(part, (list, tuple)):
        for each in part:
            yield from _integers(each)
    elif type(part) is int:
        yield part


def _parts(call: Call, specs: Shapes) -> Iterator[tuple[int, Any]]:
    """What stands in a subscript of a tensor, each with the dimension that it takes; nothing where a bool does."""
    owner, key = call.args[0], call.args[1]
    if not isinstance(owner, TensorRef):
        return
    rank = len(specs[owner.index].shape)
    is_one_list = isinstance(key, list) and len([*_integers(key)]) == len([*_leaves(key)])  # x[[0, 2]] is of one dim
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
    owner = call.args[0]
    shape = specs[owner.index].shape
    dim = 0
    for part in call.args[1]:
        if part is not None and specs[part.index].dtype.is_integer:
            yield _within(part, owner, specs, dim, low=-shape[dim])
        dim += 1 if part is None else max(1, _dimensions_of(part, specs))


_WAYS: Mapping[str, Callable[[Call, Shapes], Iterator[Positions]]] = {
    "rows": _embedding,
    "rows stated": _rows,
    "along": _along,
    "along from either end": _filled_along,
    "along or all": _take_along_dim,
    "all elements": _take,
    "classes": _classes,
    "classes of a gradient": _classes_behind_a_gradient,
    "classes stated": _one_hot,
    "plane of the result": _unpooled,
    "plane of the input": _pooled,
    "subscript": _subscripts,
    "dimensions": _index,
}
_LITERAL_WAYS: Mapping[str, Callable[[Call, Shapes], Iterator[Literal]]] = {
    "subscript": _in_subscripts,
    "index": _selected,
}
