"""The cases of a product without writing each of them out: what combinations share is made once.

A case is put together from parts, each of which depends on some axes alone and is remembered by their rows: attributes,
dtypes, every argument, the outputs, and the rest. Whatever is out of the ordinary goes the long way
(:class:`optest.plan.making.Maker`), which says what is wrong; the tests hold both ways to the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

from optest.plan.attributes import bind_attributes
from optest.plan.fills import choose_fills, is_untold, told
from optest.plan.forms import Layout
from optest.plan.making import Maker
from optest.plan.operands import input_dtypes, input_specs, places_for, read_layouts
from optest.plan.products import Product, Rows, Unit
from optest.plan.statement import KnownOperator, Statement
from optest.spec import Argument, DType, Fill, TensorSpec, TestCase

__all__ = ["Shortcut"]

_Value = TypeVar("_Value")


def _key_of(axes: Iterable[int]) -> Callable[[Rows], Any]:
    used = sorted(set(axes))
    return itemgetter(*used) if used else lambda _: None


class _Part(Generic[_Value]):
    """Something that depends on some axes, made once for each combination of their rows."""

    __slots__ = ("_key", "_make", "_values")

    def __init__(self, axes: Iterable[int], make: Callable[[Rows], _Value]) -> None:
        self._key = _key_of(axes)
        self._make = make
        self._values: dict[Any, _Value] = {}

    def __call__(self, rows: Rows) -> _Value:
        key = self._key(rows)
        try:
            return self._values[key]
        except KeyError:
            value = self._values[key] = self._make(rows)
            return value


_SETTERS: Mapping[str, Callable[[TestCase, Any], None]] = {
    each.name: TestCase.__dict__[each.name].__set__ for each in fields(TestCase)
}
"""The slots of a case, which the constructor of its frozen class fills three times as slowly."""
_new = TestCase.__new__
_set_inputs, _set_outputs = _SETTERS["inputs"], _SETTERS["outputs"]
_set_attributes, _set_generator = _SETTERS["attributes"], _SETTERS["generator"]
_OWN = frozenset(("inputs", "outputs", "attributes", "generator"))

_Arguments: TypeAlias = "tuple[str | None, Sequence[Argument], bool]"
"""A generator's path or None, the arguments, and whether a fill of theirs waits for the length of the sums."""
_Fills: TypeAlias = "tuple[str | None, list[Fill], bool]"
_Rest: TypeAlias = "list[tuple[Callable[[TestCase, Any], None], Any]]"
_TENSORS = frozenset(("op", "shapes", "dtypes", "attributes", "generator"))


class Shortcut:
    """The quick way to the cases of one operator of a product."""

    def __init__(self, operator: KnownOperator, product: Product, maker: Maker, first: Statement) -> None:
        self._operator = operator
        self._product = product
        self._maker = maker
        by_key = _axes_by_key(product.units)
        shapes, dtypes = by_key.get("shapes", ()), by_key.get("dtypes", ())
        attributes, generator = by_key.get("attributes", ()), by_key.get("generator", ())
        rest = [axis for key, axes in by_key.items() if key not in _TENSORS for axis in axes]
        self._attributes = _Part(attributes, self._bind)
        self._rest = _Part(rest, self._state_rest)
        self._present = sorted(index for _, index in read_layouts(first))
        self._places = places_for(operator, self._present)
        self._arguments: Callable[[Rows], _Arguments | None]
        if any(unit.target == ("shapes",) for unit in product.units):
            self._arguments = _Part((*shapes, *dtypes, *generator), self._all_arguments)
        else:
            self._dtypes = _Part(dtypes, self._read_dtypes)
            self._fills = _Part(generator, self._choose_fills)
            sources = _layout_sources(operator, product, self._present)
            self._slots = [
                _Part((*source.axes, *dtypes, *generator), partial(self._argument, place, source))
                for place, source in enumerate(sources)
            ]
            self._arguments = self._slot_by_slot
        used = {*shapes, *dtypes, *attributes}
        others = [axis for index, axis in enumerate(product.axes) if index not in used]
        self._outputs: Callable[[Rows, Sequence[Argument], Mapping[str, Any]], tuple[TensorSpec, ...] | None]
        self._outputs = self._infer
        if any(len(axis.rows) > 1 for axis in others):
            self._known_outputs: dict[Any, tuple[TensorSpec, ...] | None] = {}
            self._outputs_key = _key_of(used)
            self._outputs = self._infer_once

    @classmethod
    def of(cls, operator: KnownOperator, product: Product, maker: Maker, rows: Rows) -> Shortcut | None:
        """None where the long way has to be gone; ``rows`` is the first combination of the operator."""
        ledger = maker.ledger
        first = maker.statement(operator, product.entry(rows), product.path)
        if operator.infer is None or first.doubtful or first.implied_dtypes or maker.request.shapes:
            return None
        keys = {*product.fixed, *(unit.target[0] for unit in product.units)}
        says_dtypes = "dtypes" in keys or "dtypes" in first.defaults or maker.request.dtypes
        if "expects_error" in keys or ("backend_config" in keys and not says_dtypes):
            return None
        before = len(ledger.problems)
        if maker.make(first) is None or len(ledger.problems) > before:
            return None
        states_outputs = any(side == "output" for side, _ in read_layouts(first))
        return None if states_outputs else cls(operator, product, maker, first)

    def case(self, rows: Rows) -> TestCase | None:
        """The case of a combination; None if it has to be made the long way."""
        attributes, rest, found = self._attributes(rows), self._rest(rows), self._arguments(rows)
        if attributes is None or rest is None or found is None:
            return None
        generator, arguments, are_untold = found
        outputs = self._outputs(rows, arguments, attributes)
        if outputs is None:
            return None
        if are_untold:
            by_index = dict(zip(self._present, arguments, strict=True))
            arguments = told(self._operator.descriptor, by_index, outputs, attributes)
        case: TestCase = _new(TestCase)
        for put, value in rest:
            put(case, value)
        _set_inputs(case, tuple(arguments))
        _set_outputs(case, outputs)
        _set_attributes(case, attributes)
        _set_generator(case, generator)
        return case

    def _statement(self, rows: Rows) -> Statement:
        return self._maker.statement(self._operator, self._product.entry(rows), self._product.path)

    def _bind(self, rows: Rows) -> dict[str, Any] | None:
        return bind_attributes(self._statement(rows), self._maker.shared.attributes)

    def _state_rest(self, rows: Rows) -> _Rest | None:
        """Slots with their values; None if a tolerance may be missing, which depends on the outputs."""
        descriptor = self._operator.descriptor
        rest = self._maker.rest(self._statement(rows))
        if descriptor.rule is None and not any(layer.output is None for layer in rest["tolerances"]):
            return None
        values = {**rest, "descriptor": descriptor, "_key": ""}
        return [(put, values[name]) for name, put in _SETTERS.items() if name not in _OWN]

    def _slot_by_slot(self, rows: Rows) -> _Arguments | None:
        path, _, are_untold = self._fills(rows)
        arguments = []
        for slot in self._slots:
            argument = slot(rows)
            if argument is None:
                return None
            arguments.append(argument)
        return path, arguments, are_untold

    def _read_dtypes(self, rows: Rows) -> tuple[DType, ...] | None:
        return input_dtypes(self._statement(rows), self._present)

    def _choose_fills(self, rows: Rows) -> _Fills:
        path, every, by_index = choose_fills(self._statement(rows), self._maker.fills, self._present)
        chosen = [by_index.get(index, every) for index in self._present]
        return path, chosen, any(map(is_untold, chosen))

    def _argument(self, place: int, source: _Source, rows: Rows) -> Argument | None:
        dtypes = self._dtypes(rows)
        if dtypes is None:
            return None
        index = self._present[place]
        layout = source.layout(rows)
        fill = self._fills(rows)[1][place]
        try:
            spec = TensorSpec(dtype=dtypes[place], shape=layout.shape, strides=layout.strides, offset=layout.offset)
        except ValueError:
            return None
        return Argument(
            name=self._operator.descriptor.tensors.input_name(index), path=f"input{index}", spec=spec, fill=fill
        )

    def _all_arguments(self, rows: Rows) -> _Arguments | None:
        """All at once, where the inputs that are there may differ from row to row."""
        statement = self._statement(rows)
        layouts = read_layouts(statement)
        if sorted(layouts) != [("input", index) for index in self._present]:
            return None
        inputs = input_specs(statement, layouts)
        if inputs is None:
            return None
        path, every, by_index = choose_fills(statement, self._maker.fills, self._present)
        name = self._operator.descriptor.tensors.input_name
        arguments = [
            Argument(name=name(index), path=f"input{index}", spec=spec, fill=by_index.get(index, every))
            for index, spec in inputs
        ]
        return path, arguments, any(is_untold(each.fill) for each in arguments)

    def _infer(
        self, _: Rows, arguments: Sequence[Argument], attributes: Mapping[str, Any]
    ) -> tuple[TensorSpec, ...] | None:
        """What the operator makes of these; None if it does not take them, which the long way says."""
        infer = self._operator.infer
        assert infer is not None
        specs: list[TensorSpec | None] = [each.spec for each in arguments]
        if len(specs) < len(self._places):
            by_index = dict(zip(self._present, specs, strict=True))
            specs = [by_index.get(index) for index in self._places]
        try:
            return tuple(infer(specs, attributes))
        except (ValueError, TypeError, LookupError, ArithmeticError):
            return None

    def _infer_once(
        self, rows: Rows, arguments: Sequence[Argument], attributes: Mapping[str, Any]
    ) -> tuple[TensorSpec, ...] | None:
        key = self._outputs_key(rows)
        if key not in self._known_outputs:
            self._known_outputs[key] = self._infer(rows, arguments, attributes)
        return self._known_outputs[key]


def _axes_by_key(units: Iterable[Unit]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for unit in units:
        found[unit.target[0]] = (*found.get(unit.target[0], ()), *unit.axes)
    return found


@dataclass(frozen=True, slots=True)
class _Source:
    """What an input takes its layout from; of another input it takes the shape alone."""

    stated: Unit | Layout
    is_own: bool = True

    @property
    def axes(self) -> tuple[int, ...]:
        return self.stated.axes if isinstance(self.stated, Unit) else ()

    def layout(self, rows: Rows) -> Layout:
        stated = self.stated
        if isinstance(stated, Unit):
            stated = stated.values[stated.rows_of(rows)][stated.target[1]]
        layout: Layout = stated
        return layout if self.is_own else Layout(layout.shape)


def _layout_sources(operator: KnownOperator, product: Product, present: Sequence[int]) -> list[_Source]:
    """One for each input that is there; elementwise inputs that nobody names take the shape of the first."""
    stated: dict[int, Unit | Layout] = {}
    for name, layout in product.fixed.get("shapes", {}).items():
        stated[operator.locate(name)[1]] = layout
    for unit in product.units:
        if unit.target[0] == "shapes":
            stated[operator.locate(unit.target[1])[1]] = unit
    return [_Source(stated[index]) if index in stated else _Source(stated[0], is_own=False) for index in present]
