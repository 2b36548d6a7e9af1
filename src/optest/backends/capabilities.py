"""Declared capabilities of a driver: cases outside of them are skipped as unsupported, and never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from optest.backends.arguments import in_signature_order
from optest.errors import UsageError, did_you_mean
from optest.registry import load_object
from optest.spec import Argument, OperatorDescriptor, TensorSpec, TestCase, UnfitArguments, dtype, dtype_names

# Of an input in memory: contiguous rows; gaps, another order or an offset; elements that share memory; a dimension that
# runs backwards.
LAYOUTS = ("dense", "strided", "overlapping", "negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Capabilities for one operator; an empty tuple allows everything.

    ``dtypes`` and ``ranks`` restrict its main inputs, ``layouts`` all inputs. ``broadcasts``: an input may be repeated
    along others; ``promotes``: main inputs and weights may differ in dtype; ``refuses``: wrong calls raise.
    """

    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ()
    broadcasts: bool = True
    promotes: bool = True
    refuses: bool = True

    def __post_init__(self) -> None:
        """Validate the fields; raise UsageError for unknown dtypes or layouts, or fields of another type."""
        for name, known in (("dtypes", dtype_names()), ("layouts", LAYOUTS)):
            names = getattr(self, name)
            if not isinstance(names, (tuple, list)):  # ("a") is a text
                raise UsageError(f"{name} of a capability is {names!r}, expected a tuple of names")
            for item in names:
                if item not in known:
                    hint = did_you_mean(str(item), known, f"known: {', '.join(known)}")
                    raise UsageError(f"{name} of a capability has {item!r}; {hint}")
        for name in ("broadcasts", "promotes", "refuses"):
            if type(getattr(self, name)) is not bool:
                raise UsageError(f"{name} of a capability is {getattr(self, name)!r}, expected True or False")
        ranks: Any = self.ranks
        if not isinstance(ranks, (tuple, list)) or not all(type(rank) is int for rank in ranks):
            raise UsageError(f"ranks of a capability are {ranks!r}, expected a tuple of numbers")

    def lacks(self, case: TestCase) -> str | None:
        """Return why the case is outside of the capability, None if it is inside."""
        if case.expects_error is not None and not self.refuses:
            return "it declares no error handling (refuses=True)"
        of_dtype, descriptor = _main_inputs(case), case.descriptor
        sides = {argument.name for argument in descriptor.tensors.inputs if argument.optional} | {"weight", "bias"}
        has_operands = descriptor.category in _OPERANDS or descriptor.is_promoting
        of_rank = [argument for argument in of_dtype if has_operands and argument.name not in sides] or of_dtype[:1]
        if not self.broadcasts and _is_broadcast(case, case.inputs if has_operands else of_dtype):
            return "it broadcasts no input to the shape of another"
        floats = [argument for argument in _main_inputs(case, with_weights=True) if argument.spec.dtype.is_inexact]
        if not self.promotes and any(
            len({argument.spec.dtype for argument in alike}) > 1 for alike in (of_dtype, floats)
        ):
            return "it takes inputs of one dtype"
        for argument in case.inputs:
            if self.dtypes and argument in of_dtype and argument.spec.dtype.name not in self.dtypes:
                return f"it takes {' or '.join(self.dtypes)}, but {argument.name} is {argument.spec.dtype.name}"
            if self.ranks and argument in of_rank and argument.spec.rank not in self.ranks:
                return f"it takes no {argument.name} of {argument.spec.rank} dimensions"
            if self.layouts and (layout := layout_of(argument.spec)) not in self.layouts:
                return f"it takes {' or '.join(self.layouts)} tensors, but {argument.name} is {layout}"
        return None


def _is_broadcast(case: TestCase, operands: Sequence[Argument]) -> bool:
    """Return whether the operator repeats an operand along another: it takes the other's size, with outputs of the same
    shapes, where the operand has the size 1 or no dimension.

    Lengths, heads, weights and masks are no broadcasting. NumPy's rule decides if the operator has no inference.
    """
    infer = load_object(case.descriptor.infer)

    def infer_shapes(position: int, sizes: Mapping[str, int]) -> list[tuple[int, ...]] | None:
        """Return the output shapes if ``sizes`` replace those at a position counted from the end; None if rejected."""
        specs = []
        for argument in case.inputs:
            shape, size = argument.spec.shape, [sizes[argument.path]] if argument.path in sizes else []
            shape = (
                (*shape[: max(0, len(shape) - position)], *size, *shape[len(shape) - position + 1 :]) if size else shape
            )
            specs.append(TensorSpec(dtype=argument.spec.dtype, shape=shape))
        with suppress(UnfitArguments, ValueError, TypeError, LookupError, ArithmeticError):
            if infer is None:
                return [load_object("numpy:broadcast_shapes")(*(spec.shape for spec in specs))]
            return [spec.shape for spec in infer(in_signature_order(case, specs), case.attributes)]
        return None

    shapes = {operand.path: operand.spec.shape for operand in operands}
    outputs = infer_shapes(0, {})
    for path, shape in shapes.items() if outputs and len({*shapes.values()}) > 1 else ():
        for position in range(1, len(shape) + 2) if 0 not in shape else ():
            sizes = {name: shape[-position] for name, shape in shapes.items() if len(shape) >= position}
            if path in sizes:
                doubled = {name: 2 * size for name, size in sizes.items()}
                # 1 of 4 heads may stand for 2 of 8: a size of 1 that scales with the others is no broadcasting.
                if sizes[path] != 1 or {*sizes.values()} == {1} or infer_shapes(position, doubled):
                    continue
            others = (size for size in sizes.values() if size != sizes.get(path))
            if any(infer_shapes(position, {path: size}) == outputs for size in others):
                return True
    return False


def _main_inputs(case: TestCase, *, with_weights: bool = False) -> list[Argument]:
    """Return the main inputs of a case, without indices and masks; ``with_weights`` adds inexact ones of other dtypes.

    They share the dtype of the leading input (the first whose dtype varies and may be inexact) in every dtype
    combination of the operator; if it promotes, they are all inputs whose dtype varies. Without combinations they are
    the inexact inputs, or all if there are none.
    """
    descriptor = case.descriptor
    is_mixing = descriptor.is_promoting or descriptor.tensors.is_variadic
    variants = [dtypes for dtypes in descriptor.dtype_variants if len(dtypes) == len(case.inputs) > 1]
    if with_weights and variants:
        variants += [dtypes * len(case.inputs) for dtypes in descriptor.dtype_variants if len(dtypes) == 1]
    if len(variants) > 1:
        columns = [*zip(*variants, strict=True)]
        varying = [dtypes for dtypes in columns if len(set(dtypes)) > 1] or columns
        inexact = [dtypes for dtypes in varying if any(dtype(name).is_inexact for name in dtypes)]
        leading = varying if is_mixing else (inexact or varying)[: None if with_weights else 1]
        return [argument for argument, column in zip(case.inputs, columns, strict=True) if column in leading]
    floats = [argument for argument in case.inputs if argument.spec.dtype.is_inexact]
    return floats if floats and not is_mixing else list(case.inputs)


# Categories whose required inputs have one role; for others, `ranks` applies to the first main input only.
_OPERANDS = ("elementwise", "comparison", "activation", "logic", "bitwise", "contraction", "custom")


# By operator: its name or an alias of it.
Capabilities = Mapping[str, Capability]


def capability_of(capabilities: Capabilities, descriptor: OperatorDescriptor) -> Capability | None:
    """Return the capability that is declared for an operator or an alias of it, else None."""
    names = (descriptor.name, *descriptor.aliases)
    return next((capabilities[name] for name in names if name in capabilities), None)


def layout_of(spec: TensorSpec) -> str:
    """Return the layout of a tensor, one of :data:`LAYOUTS`."""
    if spec.is_dense and not spec.offset:
        return "dense"
    moving = [stride for size, stride in zip(spec.shape, spec.strides or (), strict=False) if size > 1]
    if any(stride < 0 for stride in moving):
        return "negative"
    reach = 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides or (), strict=False) if size)
    return "overlapping" if reach < spec.elements else "strided"
