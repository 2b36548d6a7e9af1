"""The cases of a product without writing each of them out: what combinations share is made once.

A case is put together from parts, each of which depends on some axes alone and is remembered by their rows: attributes,
dtypes, every argument, the outputs, and the rest. Whatever is out of the ordinary goes the long way
(:class:`optest.plan.making.Maker`), which says what is wrong; the tests hold both ways to the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeAlias

from optest.plan.attributes import bind_attributes
from optest.plan.fills import choose_fills, is_untold, told
from optest.plan.forms import Layout
from optest.plan.making import Maker
from optest.plan.operands import input_dtypes, input_specs, places_for, read_layouts
from optest.plan.products import Product, Rows, Unit, remembered
from optest.plan.statement import KnownOperator, Statement
from optest.spec import Argument, DType, Fill, TensorSpec, TestCase, format_shape
from optest.spec.case import (
    argument_text,
    attribute_words,
    attributes_text,
    identifier_of,
    key_of,
    seed_text,
    signature_of,
)
from optest.spec.construct import constructor

__all__ = ["Shortcut"]

_CaseInTheMaking: Any = constructor(TestCase)
_new = _CaseInTheMaking.__new__

_Input: TypeAlias = "tuple[Argument, str, str, str]"
"""An argument, its text in the signature, its dtype and its word in the identifier."""
_Inputs: TypeAlias = "tuple[str | None, Sequence[_Input], bool]"
"""A generator's path or None, the inputs, and whether a fill of theirs waits for the length of the sums."""
_Attributes: TypeAlias = "tuple[dict[str, Any], str, list[str]]"
"""Attributes, their text in the signature, their words in the identifier."""
_Fills: TypeAlias = "tuple[str | None, list[Fill], bool]"
_Computed: TypeAlias = "tuple[str, tuple[Any, ...]]"
"""The signature, and what each slot of _COMPUTED is."""
_Rest: TypeAlias = "tuple[str, tuple[Any, ...]]"
"""The seed as keys have it, and what each slot of _REST is."""
_COMPUTED = ("inputs", "outputs", "attributes", "generator", "_identifier")
_REST = tuple(each.name for each in fields(TestCase) if each.name not in (*_COMPUTED, "_key"))
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
        self._attributes = remembered(attributes, self._bind)
        self._rest = remembered(rest, self._state_rest)
        self._present = sorted(index for _, index in read_layouts(first))
        self._places = places_for(operator, self._present)
        assert operator.infer is not None
        self._infer_outputs = operator.infer
        self._inputs: Callable[[Rows], _Inputs | None]
        if any(unit.target == ("shapes",) for unit in product.units):
            self._inputs = remembered((*shapes, *dtypes, *generator), self._all_inputs)
        else:
            self._dtypes = remembered(dtypes, self._read_dtypes)
            self._fills = remembered(generator, self._choose_fills)
            sources = _layout_sources(operator, product, self._present)
            self._slots = [
                remembered((*source.axes, *dtypes, *generator), partial(self._input, place, source))
                for place, source in enumerate(sources)
            ]
            self._inputs = self._slot_by_slot
        computed = {*shapes, *dtypes, *attributes, *generator}
        others = [axis for index, axis in enumerate(product.axes) if index not in computed]
        is_shared = any(len(axis.rows) > 1 for axis in others)
        self._computed = remembered(computed, self._compute) if is_shared else self._compute

    @classmethod
    def of(cls, operator: KnownOperator, product: Product, maker: Maker, rows: Rows) -> Shortcut | None:
        """None where the long way has to be gone; ``rows`` is the first combination of the operator."""
        ledger = maker.ledger
        first = maker.statement(operator, product.entry(rows), product.path)
        is_plain = operator.spelled is None and operator.infer is not None
        if not is_plain or first.doubtful or first.implied_dtypes or maker.request.shapes:
            return None
        keys = {*product.fixed, *(unit.target[0] for unit in product.units)}
        says_dtypes = "dtypes" in keys or "dtypes" in first.defaults or maker.request.dtypes
        if "backend_config" in keys and not says_dtypes:
            return None
        before = ledger.said
        if maker.make(first) is None or ledger.said > before:
            return None
        names = {f"{side}{index}" for side, index in read_layouts(first)} | _names_of_dtypes(product, first)
        names |= _outputs_that_may_be_absent(operator, product)
        states_outputs = any(operator.knows(name) and operator.locate(name)[0] == "output" for name in names)
        return None if states_outputs else cls(operator, product, maker, first)

    def case(self, rows: Rows) -> TestCase | None:
        """The case of a combination; None if it has to be made the long way."""
        computed, rest = self._computed(rows), self._rest(rows)
        if computed is None or rest is None:
            return None
        signature, made = computed
        seed, stated = rest
        case = _new(_CaseInTheMaking)
        case._key = key_of(seed, signature)
        (case.inputs, case.outputs, case.attributes, case.generator, case._identifier) = made
        (
            case.descriptor,
            case.backend,
            case.backend_config,
            case.name,
            case.seed,
            case.reference,
            case.tolerances,
            case.timeout_s,
            case.retries,
            case.priority,
            case.skip,
            case.xfail,
            case.expects_error,
            case.tags,
            case.description,
            case.where,
            case.base_dir,
            case.allowed_folders,
            case.origins,
        ) = stated
        case.__class__ = TestCase
        return case  # type: ignore[no-any-return]

    def _compute(self, rows: Rows) -> _Computed | None:
        """What a signature is made of."""
        attributes, found = self._attributes(rows), self._inputs(rows)
        if attributes is None or found is None:
            return None
        bound, attributes_text, attribute_words = attributes
        generator, inputs, are_untold = found
        outputs = self._infer([each[0].spec for each in inputs], bound)
        if outputs is None:
            return None
        if are_untold:
            inputs = self._told(inputs, outputs, bound)
        arguments, texts, dtypes, words = zip(*inputs) if inputs else ((), (), (), ())  # noqa: B905 - all have four
        name = self._operator.name
        identifier = identifier_of(name, dtypes, (*words, *attribute_words))
        signature = signature_of(name, attributes_text, texts, outputs, generator)
        return signature, (arguments, outputs, bound, generator, identifier)

    def _told(
        self, inputs: Sequence[_Input], outputs: Sequence[TensorSpec], attributes: Mapping[str, Any]
    ) -> list[_Input]:
        by_index = {index: each[0] for index, each in zip(self._present, inputs, strict=True)}
        return [_input_of(each) for each in told(self._operator.descriptor, by_index, outputs, attributes)]

    def _statement(self, rows: Rows) -> Statement:
        return self._maker.statement(self._operator, self._product.entry(rows), self._product.path)

    def _bind(self, rows: Rows) -> _Attributes | None:
        bound = bind_attributes(self._statement(rows), self._maker.shared.attributes)
        if bound is None:
            return None
        descriptor = self._operator.descriptor
        return bound, attributes_text(descriptor, bound), attribute_words(descriptor, bound)

    def _state_rest(self, rows: Rows) -> _Rest | None:
        """Slots with their values; None if a tolerance may be missing, which depends on the outputs."""
        descriptor = self._operator.descriptor
        rest = self._maker.rest(self._statement(rows))
        if descriptor.rule is None and not any(
            layer.output is None and layer.tolerance.bounds_errors for layer in rest["tolerances"]
        ):
            return None
        values = {**rest, "descriptor": descriptor}
        return seed_text(rest["seed"]), tuple(values[name] for name in _REST)

    def _slot_by_slot(self, rows: Rows) -> _Inputs | None:
        path, _, are_untold = self._fills(rows)
        inputs = []
        for slot in self._slots:
            found = slot(rows)
            if found is None:
                return None
            inputs.append(found)
        return path, inputs, are_untold

    def _read_dtypes(self, rows: Rows) -> tuple[DType, ...] | None:
        return input_dtypes(self._statement(rows), self._present)

    def _choose_fills(self, rows: Rows) -> _Fills:
        path, every, by_index = choose_fills(self._statement(rows), self._maker.fills, self._present)
        chosen = [by_index.get(index, every) for index in self._present]
        return path, chosen, any(map(is_untold, chosen))

    def _input(self, place: int, source: _Source, rows: Rows) -> _Input | None:
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
        name = self._operator.descriptor.tensors.input_name(index)
        return _input_of(Argument(name=name, path=f"input{index}", spec=spec, fill=fill))

    def _all_inputs(self, rows: Rows) -> _Inputs | None:
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
        return path, list(map(_input_of, arguments)), any(is_untold(each.fill) for each in arguments)

    def _infer(self, specs: list[TensorSpec | None], attributes: Mapping[str, Any]) -> tuple[TensorSpec, ...] | None:
        """What the operator makes of these; None if it does not take them, which the long way says."""
        if len(specs) < len(self._places):
            by_index = dict(zip(self._present, specs, strict=True))
            specs = [by_index.get(index) for index in self._places]
        try:
            return tuple(self._infer_outputs(specs, attributes))
        except (ValueError, TypeError, LookupError, ArithmeticError):
            return None


def _input_of(argument: Argument) -> _Input:
    spec = argument.spec
    return argument, argument_text(argument), spec.dtype.name, format_shape(spec.shape)


def _outputs_that_may_be_absent(operator: KnownOperator, product: Product) -> set[str]:
    """The outputs that tolerances name, if some combinations may have fewer than others."""
    tensors = operator.descriptor.tensors
    if not tensors.optional_outputs and not tensors.variadic_output:
        return set()
    choices = [value for unit in product.units if unit.target == ("tolerance",) for value in unit.values.values()]
    choices += [product.fixed["tolerance"]] if "tolerance" in product.fixed else []
    return {name for choice in choices for name in choice.by_output}


def _names_of_dtypes(product: Product, first: Statement) -> set[str]:
    """The tensors whose dtypes are stated by name, in any combination."""
    stated = [first.entry.get("dtypes"), first.defaults.get("dtypes")]
    stated += [value for unit in product.units if unit.target[0] == "dtypes" for value in unit.values.values()]
    return {name for value in stated if isinstance(value, dict) for name in value}


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
