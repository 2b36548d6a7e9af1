"""A case called once more with other memory around its inputs, and with other bytes in freed memory: a result that
changes with it is made of what nobody handed over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import guards_memory, margin_bytes, reads_inputs, writes_outputs
from optest.core.actual import actual_outputs
from optest.core.comparison import Comparison
from optest.core.layers import is_composed
from optest.core.phases import RUN
from optest.core.reproducible import is_reproducible
from optest.memory.buffers import require_written
from optest.memory.margins import SIDES, Margins
from optest.memory.poisons import WRITE_POISONS, fill_freed_blocks, holding, may_hold
from optest.numerics import bits, same_bits
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase

Array = np.ndarray[Any, Any]
Outputs = Sequence[Array]
_NAME = "two paddings of the inputs"
_DONE = Check(name=_NAME, state=CheckState.DONE, detail="the same bits")
_VARIES = Check(name=_NAME, state=CheckState.INCONCLUSIVE, detail="the bits differ, but with one padding, too")
_FRESH = Check(name="fresh memory", state=CheckState.DONE, detail="blocks that NumPy had freed held a poison")
_AGAIN = "called once more, with other numbers around its inputs"
_LONGEST_S = 5.0
_TOO_LONG = Check(name=_NAME, state=CheckState.NOT_POSSIBLE, detail=f"the call took more than {_LONGEST_S:.0f} s")


def has_surroundings(driver: BackendDriver, case: TestCase) -> bool:
    """Whether foreign code gets the inputs where optest has put them."""
    is_own = driver.is_reference or guards_memory(driver) or is_composed(driver, case.descriptor)
    return reads_inputs(driver) and not is_own and case.expects_error is None


def call_in_other_surroundings(
    first: Comparison, layouts: Sequence[tuple[str, TensorSpec]] | None, own: list[Array] | None = None
) -> tuple[Check, ...]:
    """Call once more, and as often as it takes to find what is to blame where the outputs have other bits. ``own`` gets
    the arrays that the backend allocated in the first of these calls.

    Raises:
        Fault: READ_OUT_OF_BOUNDS where they depend on what lies around an input; UNWRITTEN where they hold what freed
            memory held; and what the further call ends with, where the first one did not.
    """
    case, driver = first.case, first.driver
    if (first.clock.timings().run_s or 0.0) > _LONGEST_S:
        return (_TOO_LONG,)
    plain = Margins(margin_bytes(driver))
    sizes = [] if writes_outputs(driver, case) else [each.nbytes for each in first.outputs]

    def called(margins: Margins, poison: int = 0, own: list[Array] | None = None) -> Outputs:
        if sizes:
            margins = margins._replace(before_call=lambda: fill_freed_blocks(sizes, WRITE_POISONS[poison]))
        with first.clock.announced(RUN):
            outputs, _ = actual_outputs(case, driver, first.inputs, layouts, first.interrupted, own, margins)
        return outputs

    others = plain.all_others(len(case.inputs))
    try:
        other = called(others, own=own)
    except Fault as fault:
        raise Fault(fault.reason, f"{_AGAIN}: {fault.message}", details=fault.details) from None
    if sizes and any(may_hold(each, WRITE_POISONS[0]) for each in other):
        again = called(others, 1)
        names = [name for name, _ in layouts or ()] or case.descriptor.tensors.output_names(len(other)) or ()
        never = (
            holding(one, WRITE_POISONS[0]) & holding(two, WRITE_POISONS[1]) if one.shape == two.shape else one != one
            for one, two in zip(other, again, strict=False)
        )
        require_written(dict(zip(names, zip(first.outputs, never, strict=False), strict=False)))
    checks = (_DONE, _FRESH) if sizes else (_DONE,)
    if same_bits(first.outputs, other):
        return checks
    if not is_reproducible(lambda: same_bits(first.outputs, called(plain)), lambda: same_bits(other, called(others))):
        return (_VARIES, *checks[1:])
    raise _read_beyond(first, other, called, plain)


def _read_beyond(first: Comparison, other: Outputs, called: Callable[[Margins], Outputs], plain: Margins) -> Fault:
    """The fault of a case whose outputs follow what lies around its inputs, with the side of an input that does it."""
    case = first.case
    output, where = _first_difference(first.outputs, other)
    names = case.descriptor.tensors.output_names(len(first.outputs)) or ()
    name = names[output] if output < len(names) else str(output)
    what = f"element {where} of output {name}" if where else f"output {name}"
    for place, argument in enumerate(case.inputs):
        for side, words in zip(SIDES, ("before the start", "behind the end"), strict=True):
            if not same_bits(first.outputs, called(Margins(plain.nbytes, frozenset({(place, side)})))):
                beside = f"{words} of {argument.path} ({argument.name})"
                details = {"output": name, "index": where, "input": argument.name, "place": side}
                return Fault(
                    Reason.READ_OUT_OF_BOUNDS, f"{what} depends on memory that was read {beside}", details=details
                )
    return Fault(Reason.READ_OUT_OF_BOUNDS, f"{what} depends on memory that was read around the inputs")


def _first_difference(one: Outputs, other: Outputs) -> tuple[int, list[int]]:
    """The place of the output, and the index of an element in it that has other bits."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return place, []
        differs = np.atleast_1d(bits(a) != bits(b))
        if differs.any():
            return place, [int(axis[0]) for axis in np.nonzero(differs)][: a.ndim]
    return 0, []
