"""What a driver states that it can do: cases outside of it are declared gaps, which are never asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from optest.backends.arguments import at_their_places
from optest.errors import UsageError, did_you_mean
from optest.registry import load_object
from optest.spec import Argument, OperatorDescriptor, TensorSpec, TestCase, UnfitArguments, dtype, dtype_names

LAYOUTS = ("dense", "strided", "overlapping", "negative")
"""Of an input in memory: row by row without gaps; with gaps, another order or an offset; with elements that share a
place; with a dimension that runs backwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Promises for one operator: ``dtypes`` and ``ranks`` of its main inputs, ``layouts`` of all, empty for any;
    ``broadcasts`` that inputs may be repeated along others, ``promotes`` that main inputs and weights may have several
    dtypes, ``refuses`` that wrong calls are refused by an exception."""

    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ()
    broadcasts: bool = True
    promotes: bool = True
    refuses: bool = True

    def __post_init__(self) -> None:
        """Raises:
        UsageError: for dtypes or layouts that there are not, or ranks that are no tuple of numbers.
        """
        for name, known in (("dtypes", dtype_names()), ("layouts", LAYOUTS)):
            stated = getattr(self, name)
            if not isinstance(stated, (tuple, list)):  # ("a") is a text
                raise UsageError(f"{name} of a capability is {stated!r}, expected a tuple of names")
            for each in stated:
                if each not in known:
                    hint = did_you_mean(str(each), known, f"known: {', '.join(known)}")
                    raise UsageError(f"{name} of a capability has {each!r}; {hint}")
        for name in ("broadcasts", "promotes", "refuses"):
            if type(getattr(self, name)) is not bool:
                raise UsageError(f"{name} of a capability is {getattr(self, name)!r}, expected True or False")
        ranks: Any = self.ranks
        if not isinstance(ranks, (tuple, list)) or not all(type(each) is int for each in ranks):
            raise UsageError(f"ranks of a capability are {ranks!r}, expected a tuple of numbers")

    def lacks(self, case: TestCase) -> str | None:
        """Why the case is outside of it, None if it is inside."""
        if case.expects_error is not None and not self.refuses:
            return "it does not promise to refuse wrong calls (refuses=True)"
        of_dtype, descriptor = _main_inputs(case), case.descriptor
        sides = {each.name for each in descriptor.tensors.inputs if each.optional} | {"weight", "bias"}
        has_operands = descriptor.category in _OPERANDS or descriptor.is_promoting
        of_rank = [each for each in of_dtype if has_operands and each.name not in sides] or of_dtype[:1]
        if not self.broadcasts and _is_broadcast(case, case.inputs if has_operands else of_dtype):
            return "it broadcasts no input to the shape of another"
        floats = [each for each in _main_inputs(case, with_weights=True) if each.spec.dtype.is_inexact]
        if not self.promotes and any(len({each.spec.dtype for each in alike}) > 1 for alike in (of_dtype, floats)):
            return "it takes inputs of one dtype"
        for each in case.inputs:
            if self.dtypes and each in of_dtype and each.spec.dtype.name not in self.dtypes:
                return f"it takes {' or '.join(self.dtypes)}, but {each.name} is {each.spec.dtype.name}"
            if self.ranks and each in of_rank and each.spec.rank not in self.ranks:
                return f"it takes no {each.name} of {each.spec.rank} dimensions"
            if self.layouts and (layout := layout_of(each.spec)) not in self.layouts:
                return f"it takes {' or '.join(self.layouts)} tensors, but {each.name} is {layout}"
        return None


def _is_broadcast(case: TestCase, operands: Sequence[Argument]) -> bool:
    """Return whether the operator repeats an operand along another: it takes the other's size, with outputs of the same
    shapes, where the operand has the size 1 or no dimension.

    Lengths, heads, weights and masks are no broadcasting. NumPy's rule decides if the operator has no inference.
    """
    infer = load_object(case.descriptor.infer)

    def inferred(place: int, sizes: Mapping[str, int]) -> list[tuple[int, ...]] | None:
        """Return the outputs' shapes for other sizes at a place that is counted from the end; None for a refusal."""
        specs = []
        for each in case.inputs:
            shape, size = each.spec.shape, [sizes[each.path]] if each.path in sizes else []
            shape = (*shape[: max(0, len(shape) - place)], *size, *shape[len(shape) - place + 1 :]) if size else shape
            specs.append(TensorSpec(dtype=each.spec.dtype, shape=shape))
        with suppress(UnfitArguments, ValueError, TypeError, LookupError, ArithmeticError):
            if infer is None:
                return [load_object("numpy:broadcast_shapes")(*(each.shape for each in specs))]
            return [each.shape for each in infer(at_their_places(case, specs), case.attributes)]
        return None

    shapes = {each.path: each.spec.shape for each in operands}
    outputs = inferred(0, {})
    for path, shape in shapes.items() if outputs and len({*shapes.values()}) > 1 else ():
        for place in range(1, len(shape) + 2) if 0 not in shape else ():
            sizes = {name: each[-place] for name, each in shapes.items() if len(each) >= place}
            if path in sizes:
                doubled = {name: 2 * size for name, size in sizes.items()}
                if sizes[path] != 1 or {*sizes.values()} == {1} or inferred(place, doubled):  # 2 of 8 heads as 1 of 4
                    continue
            if any(inferred(place, {path: size}) == outputs for name, size in sizes.items() if size != sizes.get(path)):
                return True
    return False


def _main_inputs(case: TestCase, *, with_weights: bool = False) -> list[Argument]:
    """Return the main inputs of a case, which exclude indices and masks; with weights also all inexact ones whose dtype
    varies.

    They have the dtype of the leading input, the first whose dtype varies and may be inexact, in every combination of
    the operator; if it promotes, they are all inputs whose dtype varies. Without combinations they are the inexact
    inputs, if any.
    """
    descriptor = case.descriptor
    is_mixing = descriptor.is_promoting or descriptor.tensors.is_variadic
    variants = [each for each in descriptor.dtype_variants if len(each) == len(case.inputs) > 1]
    if with_weights and variants:
        variants += [each * len(case.inputs) for each in descriptor.dtype_variants if len(each) == 1]
    if len(variants) > 1:
        columns = [*zip(*variants, strict=True)]
        varying = [each for each in columns if len(set(each)) > 1] or columns
        inexact = [each for each in varying if any(dtype(name).is_inexact for name in each)]
        leading = varying if is_mixing else (inexact or varying)[: None if with_weights else 1]
        return [each for each, column in zip(case.inputs, columns, strict=True) if column in leading]
    floats = [each for each in case.inputs if each.spec.dtype.is_inexact]
    return floats if floats and not is_mixing else list(case.inputs)


_OPERANDS = ("elementwise", "comparison", "activation", "logic", "bitwise", "contraction", "custom")
"""Categories whose required inputs have one role; for others, ``ranks`` is about the first main input only."""


Capabilities = Mapping[str, Capability]
"""By operator: its name or an alias of it."""


def capability_of(capabilities: Capabilities, descriptor: OperatorDescriptor) -> Capability | None:
    """What is stated of an operator, None if nothing is."""
    names = (descriptor.name, *descriptor.aliases)
    return next((capabilities[name] for name in names if name in capabilities), None)


def layout_of(spec: TensorSpec) -> str:
    """One of :data:`LAYOUTS`."""
    if spec.is_dense and not spec.offset:
        return "dense"
    moving = [stride for size, stride in zip(spec.shape, spec.strides or (), strict=False) if size > 1]
    if any(stride < 0 for stride in moving):
        return "negative"
    reach = 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides or (), strict=False) if size)
    return "overlapping" if reach < spec.elements else "strided"
