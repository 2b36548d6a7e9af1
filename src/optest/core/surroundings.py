"""Dependence of outputs on memory that was not passed: a further call with other memory around the inputs, and
other bytes in freed memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from optest.numerics import Array, bits, same_bits
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase

Outputs = Sequence[Array]
_NAME = "two paddings of the inputs"  # name of the check
_DONE = Check(name=_NAME, state=CheckState.DONE, detail="the same bits")
_VARIES = Check(name=_NAME, state=CheckState.INCONCLUSIVE, detail="the bits also differ between calls with one padding")
_FRESH = Check(name="fresh memory", state=CheckState.DONE, detail="blocks that NumPy had freed held a poison")
_AGAIN = "called once more, with other numbers around its inputs"
_LONGEST_S = 5.0
_TOO_LONG = Check(name=_NAME, state=CheckState.NOT_POSSIBLE, detail=f"the call took more than {_LONGEST_S:.0f} s")


def can_vary_surroundings(driver: BackendDriver, case: TestCase) -> bool:
    """Return whether foreign code reads the inputs in memory that optest allocated."""
    is_own = driver.is_reference or guards_memory(driver) or is_composed(driver, case.descriptor)
    return reads_inputs(driver) and not is_own and case.expects_error is None


def check_surroundings(
    first: Comparison, layouts: Sequence[tuple[str, TensorSpec]] | None, allocated: list[Array] | None = None
) -> tuple[Check, ...]:
    """Call once more with other memory around the inputs and in freed blocks, and return the checks.

    If the outputs have other bits, further calls find the cause. ``allocated`` receives the arrays that the backend
    allocated in the first of these calls.

    Raises:
        Fault: READ_OUT_OF_BOUNDS if outputs depend on memory around an input, UNWRITTEN if they contain freed memory,
            and any fault of the further call.
    """
    case, driver = first.case, first.driver
    if (first.clock.timings().run_s or 0.0) > _LONGEST_S:
        return (_TOO_LONG,)
    plain = Margins(margin_bytes(driver))
    # A backend that allocates its outputs may get freed blocks of their sizes, which are poisoned first.
    sizes = [] if writes_outputs(driver, case) else [output.nbytes for output in first.outputs]

    def outputs_with(margins: Margins, poison: int = 0, allocated: list[Array] | None = None) -> Outputs:
        """Call the driver with these margins, after filling freed blocks with a poison, and return its outputs."""
        if sizes:
            margins = margins._replace(before_call=lambda: fill_freed_blocks(sizes, WRITE_POISONS[poison]))
        with first.clock.announced(RUN):
            outputs, _ = actual_outputs(case, driver, first.inputs, layouts, first.interrupted, allocated, margins)
        return outputs

    other_margins = plain.all_others(len(case.inputs))
    try:
        other = outputs_with(other_margins, allocated=allocated)
    except Fault as fault:
        raise Fault(fault.reason, f"{_AGAIN}: {fault.message}", details=fault.details) from None
    if sizes and any(may_hold(each, WRITE_POISONS[0]) for each in other):
        second = outputs_with(other_margins, 1)
        names = [name for name, _ in layouts or ()] or case.descriptor.tensors.output_names(len(other)) or ()
        # An element that equals both poisons in two calls was never written.
        unwritten = (
            holding(one, WRITE_POISONS[0]) & holding(two, WRITE_POISONS[1]) if one.shape == two.shape else one != one
            for one, two in zip(other, second, strict=False)
        )
        require_written(dict(zip(names, zip(first.outputs, unwritten, strict=False), strict=False)))
    checks = (_DONE, _FRESH) if sizes else (_DONE,)
    if same_bits(first.outputs, other):
        return checks
    repeats_first = lambda: same_bits(first.outputs, outputs_with(plain))  # noqa: E731
    repeats_other = lambda: same_bits(other, outputs_with(other_margins))  # noqa: E731
    if not is_reproducible(repeats_first, repeats_other):
        return (_VARIES, *checks[1:])
    raise _out_of_bounds_fault(first, other, outputs_with, plain)


def _out_of_bounds_fault(
    first: Comparison, outputs: Outputs, outputs_with: Callable[[Margins], Outputs], plain: Margins
) -> Fault:
    """Return the fault of outputs that depend on memory around the inputs; name the input and side if one suffices."""
    case = first.case
    output, index = _first_difference(first.outputs, outputs)
    names = case.descriptor.tensors.output_names(len(first.outputs)) or ()
    name = names[output] if output < len(names) else str(output)
    message = f"{f'element {index} of ' if index else ''}output {name} depends on memory that was read"
    for number, argument in enumerate(case.inputs):
        # Reports leave out the detail `place`, "before" or "behind", if the message contains the word.
        for side, words in zip(SIDES, ("before the start", "behind the end"), strict=True):
            if not same_bits(first.outputs, outputs_with(Margins(plain.nbytes, frozenset({(number, side)})))):
                details = {"output": name, "index": index, "input": argument.name, "place": side}
                message += f" {words} of {argument.path} ({argument.name})"
                return Fault(Reason.READ_OUT_OF_BOUNDS, message, details=details)
    return Fault(Reason.READ_OUT_OF_BOUNDS, f"{message} around the inputs")


def _first_difference(before: Outputs, after: Outputs) -> tuple[int, list[int]]:
    """Return the number of the first output with other bits, and an index in it ([] if the shapes or dtypes differ)."""
    for number, (a, b) in enumerate(zip(before, after, strict=False)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return number, []
        differs = np.atleast_1d(bits(a) != bits(b))
        if differs.any():
            return number, [int(axis[0]) for axis in np.nonzero(differs)][: a.ndim]
    return 0, []
