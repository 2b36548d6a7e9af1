"""Index tensors and masks among the arguments of a call: legal ranges of positions, and cases that violate them.

Everything is derived from shapes and fills, without torch, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from optest.operators.shapes import for_each_dim
from optest.spec import Argument, Fault, Interval, Reason, TensorSpec, TestCase
from optest.spec.calls import Call, TensorRef, parse_call
from optest.torch.fact_sheet import facts_of

Shapes = Sequence[TensorSpec]


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Range ``low`` to ``high`` of the positions in ``target`` that input ``index`` holds, and a value to ignore."""

    index: int
    low: int
    high: int
    target: str
    ignored: int | None = None


def index_intervals(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> Mapping[str, Interval]:
    """Return the legal interval of every input that holds positions, for fills without explicit bounds."""
    known = [spec for spec in specs if spec is not None]
    return {
        f"input{positions.index}": Interval(low=float(positions.low), high=float(positions.high))
        for positions in positions_of(attributes["call"], known)
        if positions.high >= positions.low
    }


def positions_of(text: str, specs: Shapes) -> list[IndexRange]:
    """Return the range of every integer tensor that the call uses as positions."""
    call = parse_call(text)
    find = _TENSOR_POSITIONS.get(facts_of(call.function).positions)
    if find is None:
        return []
    try:
        return [positions for positions in find(call, specs) if specs[positions.index].dtype.is_integer]
    except (IndexError, KeyError, TypeError, AttributeError):
        return []  # a call with wrong arguments: torch reports which


_Literal = tuple[int, IndexRange]


def literals_of(text: str, specs: Shapes) -> list[_Literal]:
    """Return every integer in a subscript, or the index of ``select``, with its legal range."""
    call = parse_call(text)
    find = _LITERAL_POSITIONS.get(facts_of(call.function).literal_positions)
    if find is None:
        return []
    try:
        return list(find(call, specs))
    except (IndexError, KeyError, TypeError, AttributeError):
        return []  # a call with wrong arguments: torch reports which


def _argument(call: Call, index: int, name: str) -> Any:
    """Return a required argument by name, else by index; raise IndexError if it is missing."""
    return call.kwargs[name] if name in call.kwargs else call.args[index]


def _range_in(reference: Any, owner: TensorRef, specs: Shapes, dim: int | None) -> IndexRange:
    """Return the range 0 to size - 1 of positions in dimension ``dim`` of ``owner``, or in all its elements."""
    shape = specs[owner.index].shape
    if dim is None:
        size, target = prod(shape), f"the {prod(shape)} elements of input{owner.index}"
    else:
        axis = dim % len(shape) if shape else 0
        size = shape[axis] if shape else 1
        target = f"dimension {axis} of input{owner.index}, which has the size {size}"
    return IndexRange(reference.index, 0, size - 1, target)


def _signed_range_in(reference: Any, owner: TensorRef, specs: Shapes, dim: int | None) -> IndexRange:
    """Return the range -size to size - 1; raise IndexError if ``owner`` has no dimension ``dim``."""
    positions = _range_in(reference, owner, specs, dim)
    return replace(positions, low=-1 - positions.high if dim is None else -specs[owner.index].shape[dim])


# The functions below find the positions of one kind of function each; the fact sheet selects them by the keys of
# _TENSOR_POSITIONS and _LITERAL_POSITIONS.


def _embedding(call: Call, specs: Shapes) -> Iterator[IndexRange]:
    # torch.nn.functional takes the positions first, the aten operator the table.
    if call.function.startswith("torch.nn.functional."):
        table, positions = _argument(call, 1, "weight"), _argument(call, 0, "input")
    else:
        table, positions = _argument(call, 0, "weight"), _argument(call, 1, "indices")
    yield _range_in(positions, table, specs, 0)


def _classes(call: Call, specs: Shapes) -> Iterator[IndexRange]:
    scores = _argument(call, 0, "input")
    positions = _range_in(_argument(call, 1, "target"), scores, specs, 1 if specs[scores.index].rank > 1 else 0)
    yield replace(positions, ignored=call.argument(4, "ignore_index", -100))


def _unpooled(call: Call, specs: Shapes) -> Iterator[IndexRange]:
    """Yield the range of positions in a plane of the result: of ``output_size``, or computed from the kernel."""
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


def _pooled(call: Call, specs: Shapes) -> Iterator[IndexRange]:
    """Yield the range of positions in a plane of the pooled tensor, for the backward operators of max pooling."""
    axes = int(call.operator.partition("pool")[2][0])
    index = 2 if call.operator.startswith("adaptive") else 7
    yield _in_plane(_argument(call, index, "indices"), specs[_argument(call, 1, "self").index].shape[-axes:])


def _in_plane(reference: Any, sizes: Sequence[int]) -> IndexRange:
    return IndexRange(reference.index, 0, prod(sizes) - 1, f"a plane of {prod(sizes)} elements")


def _rows(call: Call, _: Shapes) -> Iterator[IndexRange]:
    rows = _argument(call, 2, "num_weights")
    yield IndexRange(_argument(call, 1, "indices").index, 0, rows - 1, f"a table of {rows} rows")


def _one_hot(call: Call, _: Shapes) -> Iterator[IndexRange]:
    classes = call.argument(1, "num_classes", -1)
    if isinstance(classes, int) and classes > 0:
        yield IndexRange(_argument(call, 0, "tensor").index, 0, classes - 1, f"{classes} classes")


def _subscripts(call: Call, specs: Shapes) -> Iterator[IndexRange]:
    owner = call.args[0]
    for dim, part in _subscript_parts(call, specs):
        if isinstance(part, TensorRef) and specs[part.index].dtype.is_integer:
            yield _signed_range_in(part, owner, specs, dim)


def _in_subscripts(call: Call, specs: Shapes) -> Iterator[_Literal]:
    for dim, part in _subscript_parts(call, specs):
        for value in _flattened(part):
            if type(value) is int:
                yield value, _signed_range_in(call.args[0], call.args[0], specs, dim)


def _selected(call: Call, specs: Shapes) -> Iterator[_Literal]:
    owner, value = _argument(call, 0, "input"), _argument(call, 2, "index")
    if type(value) is int:
        yield value, _signed_range_in(owner, owner, specs, _argument(call, 1, "dim"))


def _subscript_parts(call: Call, specs: Shapes) -> Iterator[tuple[int, Any]]:
    """Yield each part of a tensor's subscript with its dimension; nothing if a part is a bool."""
    owner, key = call.args[0], call.args[1]
    if not isinstance(owner, TensorRef):
        return
    rank = len(specs[owner.index].shape)
    # x[[0, 2]] indexes one dimension with a list, x[[a, b]] with tensors indexes two.
    is_one_list = isinstance(key, list) and all(type(item) is int for item in _flattened(key))
    parts = list(key) if isinstance(key, (tuple, list)) and not is_one_list else [key]
    if any(isinstance(item, bool) for item in _flattened(parts)):
        return
    indexed = sum(_dimensions_of(part, specs) for part in parts)
    dim = 0
    for part in parts:
        if part is Ellipsis:
            dim += rank - indexed
        else:
            yield dim, part
            dim += _dimensions_of(part, specs)


def _flattened(part: Any) -> Iterator[Any]:
    if isinstance(part, (list, tuple)):
        for item in part:
            yield from _flattened(item)
    else:
        yield part


def _dimensions_of(part: Any, specs: Shapes) -> int:
    """Return how many dimensions a part of a subscript indexes: 0 for None and ..., the rank of a mask, else 1."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, TensorRef) and not specs[part.index].dtype.is_integer:
        return specs[part.index].rank
    return 1


def _index(call: Call, specs: Shapes) -> Iterator[IndexRange]:
    # aten.index and index_put take a list with a tensor or None for each dimension.
    dim = 0
    for part in call.args[1]:
        if part is not None and specs[part.index].dtype.is_integer:
            yield _signed_range_in(part, call.args[0], specs, dim)
        dim += 1 if part is None else max(1, _dimensions_of(part, specs))


_TENSOR_POSITIONS: Mapping[str, Callable[[Call, Shapes], Iterable[IndexRange]]] = {
    "rows": _embedding,
    "rows stated": _rows,
    "along": lambda call, specs: [
        _range_in(_argument(call, 2, "index"), _argument(call, 0, "input"), specs, _argument(call, 1, "dim"))
    ],
    # Unlike gather and scatter, index_fill accepts negative positions.
    "along from either end": lambda call, specs: [
        _signed_range_in(
            _argument(call, 2, "index"),
            owner := _argument(call, 0, "input"),
            specs,
            _argument(call, 1, "dim") if specs[owner.index].shape else None,
        )
    ],
    "along or all": lambda call, specs: [
        _range_in(_argument(call, 1, "indices"), _argument(call, 0, "input"), specs, call.argument(2, "dim"))
    ],
    "all elements": lambda call, specs: [
        _signed_range_in(_argument(call, 1, "index"), _argument(call, 0, "input"), specs, None)
    ],
    "classes": _classes,
    "classes of a gradient": lambda call, specs: _classes(replace(call, args=call.args[1:]), specs),
    "classes stated": _one_hot,
    "plane of the result": _unpooled,
    "plane of the input": _pooled,
    "subscript": _subscripts,
    "dimensions": _index,
}
_LITERAL_POSITIONS: Mapping[str, Callable[[Call, Shapes], Iterator[_Literal]]] = {
    "subscript": _in_subscripts,
    "index": _selected,
}


def require_legal_positions(case: TestCase) -> None:
    """Raise Fault BAD_CASE if the call, or the fill of an index tensor, has positions out of range.

    Skip cases that expect an error; with a generator, check only integers in the call.
    """
    if case.expects_error is not None:
        return
    text, specs = case.attributes["call"], [argument.spec for argument in case.inputs]
    for value, legal in literals_of(text, specs):
        if not legal.low <= value <= legal.high:
            raise Fault(
                Reason.BAD_CASE,
                f"the position in {legal.target} is {value}, expected {legal.low} to {legal.high}; correct it, or set "
                "expects_error if it should be refused",
            )
    if case.generator is not None:
        return
    for legal in positions_of(text, specs):
        if legal.high < max(legal.low, 0) and specs[legal.index].elements:
            raise Fault(
                Reason.BAD_CASE,
                f"input{legal.index} holds positions in {legal.target}, but it is empty; give input{legal.index} "
                "no elements, or the indexed tensor some",
            )
        largest, smallest = _fill_bounds(case.inputs[legal.index], legal)
        if largest is not None and largest > legal.high:
            raise Fault(Reason.BAD_CASE, _out_of_range_message(legal, case, largest))
        if smallest is not None and smallest < legal.low:
            raise Fault(Reason.BAD_CASE, _out_of_range_message(legal, case, smallest))


def _out_of_range_message(positions: IndexRange, case: TestCase, value: int) -> str:
    fill = case.inputs[positions.index].fill
    low = f"low: {positions.low} and " if value < positions.low else ""
    return (
        f"input{positions.index} is filled by {fill}, which reaches {value}, but holds positions in "
        f"{positions.target}; set {low}high: {positions.high + 1}"
    )


def _fill_bounds(argument: Argument, positions: IndexRange) -> tuple[int | None, int | None]:
    """Return the largest and smallest value that the fill's parameters imply, None if they imply none."""
    kind, parameters = argument.fill.kind, argument.fill.parameters
    if argument.spec.elements == 0:
        return None, None
    if kind in ("zeros", "ones"):
        return (int(kind == "ones"),) * 2
    if kind == "randint":
        high, low = parameters.get("high"), parameters.get("low")
        return (None if high is None else int(high) - 1), (None if low is None else int(low))
    if kind == "full":
        return (int(parameters["value"]),) * 2 if isinstance(parameters["value"], (int, float)) else (None, None)
    if kind == "data":
        numbers = (value for value in _flattened(parameters["values"]) if isinstance(value, (int, float)))
        values = [value for value in numbers if value != positions.ignored]
        return (int(max(values)), int(min(values))) if values else (None, None)
    if kind == "arange":
        last = parameters.get("start", 0) + (argument.spec.elements - 1) * parameters.get("step", 1)
        return int(last), None
    return None, None


def require_chosen_elements(case: TestCase) -> None:
    """Raise Fault BAD_CASE if the fill of a selecting mask is False everywhere, so that the call changes nothing."""
    # Masks of attention are no selecting masks: zeros for a query without keys are a defined result.
    if case.expects_error is not None or case.generator is not None:
        return
    call = parse_call(case.attributes["call"])
    for index in masks_of(call, [argument.spec for argument in case.inputs]):
        argument = case.inputs[index]
        if argument.spec.elements and _is_all_false(argument):
            raise Fault(
                Reason.BAD_CASE,
                f"input{index}, the mask of {call.function}, is filled by {argument.fill} and False everywhere, so the "
                "call selects nothing; use the fill rand, which gives both values, or write the mask as data",
            )


def masks_of(call: Call, specs: list[TensorSpec]) -> list[int]:
    """Return the numbers of the bool inputs that select elements in this call."""
    arguments: Sequence[Any] = ()
    match facts_of(call.function).mask:
        case "argument":
            arguments = [call.argument(1, "mask")]
        case "subscript" if len(call.args) > 1:
            arguments = call.args[1] if isinstance(call.args[1], (list, tuple)) else [call.args[1]]
    indices = [argument.index for argument in arguments if isinstance(argument, TensorRef)]
    return [index for index in indices if specs[index].dtype.name == "bool"]


def _is_all_false(argument: Argument) -> bool:
    """Return whether the fill's parameters imply that no element is True."""
    kind, parameters = argument.fill.kind, argument.fill.parameters
    if kind == "data":
        return not any(map(float, _flattened(parameters["values"])))  # numbers, or text such as "-inf"
    if kind == "randint":
        return (
            parameters.get("high") is not None and int(parameters["high"]) <= 1 and int(parameters.get("low") or 0) == 0
        )
    return kind == "zeros" or (kind == "full" and not float(parameters["value"]))
