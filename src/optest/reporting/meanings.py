"""Meaning and remedy of each reason, status and rule, and more specific remedies for known facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optest.reporting.typography import printable
from optest.spec import Reason, Status


@dataclass(frozen=True, slots=True)
class Meaning:
    """Description of an event (``sentence``) and first step of a user (``remedy``), without full stops."""

    sentence: str
    remedy: str


MEANINGS: dict[Reason, Meaning] = {
    Reason.VALUE: Meaning(
        "elements of an output differ from the expected values by more than the rule allows",
        "look at their positions: a tail, a tile, one row, or everywhere",
    ),
    Reason.NAN: Meaning(
        "an output has NaN where the reference has a number, or a number where the reference has NaN",
        "look for division by zero, overflow, missing max-subtraction, or memory that was never written",
    ),
    Reason.SHAPE: Meaning(
        "an output has another shape than the operator defines",
        "check reduced, broadcast and size-1 dimensions",
    ),
    Reason.DTYPE: Meaning(
        "an output has another dtype than the operator defines",
        "cast the output to the expected dtype in the kernel",
    ),
    Reason.MISSING_OUTPUT: Meaning(
        "the backend did not return an output of the operator",
        "return every output, in order or by name",
    ),
    Reason.EXTRA_OUTPUT: Meaning(
        "the backend returned more outputs than the operator has",
        "return only the operator's outputs",
    ),
    Reason.NOTHING_COMPARED: Meaning(
        "no element was compared, so the result is inconclusive",
        "check the shapes, or declare the output as empty",
    ),
    Reason.INPUT_MUTATED: Meaning(
        "the call changed an input",
        "write to a copy, or declare the change: `mutates` of an operator, `in_place` of `@optest.kernel`",
    ),
    Reason.OUT_OF_BOUNDS: Meaning(
        "the call wrote to memory outside of an output",
        "check the mask of the last block (sizes that are no multiple of the tile), and each stride",
    ),
    Reason.READ_OUT_OF_BOUNDS: Meaning(
        "the call read memory outside of an input",
        "check the mask of the last block (sizes that are no multiple of the tile), and each stride",
    ),
    Reason.UNWRITTEN: Meaning(
        "the call did not write all elements of an output",
        "check the tail, and that the launch covers every element",
    ),
    Reason.WORKSPACE: Meaning(
        "the size query and the call disagree about the size of the workspace",
        "compare the size query with the workspace that the kernel uses",
    ),
    Reason.STATE: Meaning(
        "the output depends on earlier calls, or the call changed the state of the process",
        "keep nothing from one call for the next (results, accumulators, caches); restore changed state of the process",
    ),
    Reason.NONDETERMINISTIC: Meaning(
        "a repeated call violated the rule, or returned other bits although the backend declares `invariant`; or tasks "
        "of a scene use the same memory without synchronisation",
        "look for random numbers, races, shared buffers and atomics; if only bits differ, remove `invariant`",
    ),
    Reason.INVARIANT: Meaning(
        "the result of a batch element depends on the other elements or on its position, or a captured program is "
        "inconsistent",
        "look at what batch elements or captures share: reductions over a wrong dimension, last blocks, buffers",
    ),
    Reason.LEAK: Meaning(
        "the call did not release memory or handles",
        "free everything that the call allocates, also when it fails",
    ),
    Reason.SANITIZER: Meaning(
        "a sanitizer reported a fault",
        "read its report and repair the fault; the values may be right nevertheless",
    ),
    Reason.NOT_REFUSED: Meaning(
        "the backend accepted an invalid call that it should refuse",
        "check dtypes, shapes, strides, pointers and attributes before computing",
    ),
    Reason.WRONG_ERROR: Meaning(
        "the backend refused the call with another error than expected",
        "raise the expected type of exception, with a text that names the cause",
    ),
    Reason.WRONG_DEVICE: Meaning(
        "an output is on another device than the inputs",
        "allocate outputs on the inputs' device",
    ),
    Reason.FALLBACK: Meaning(
        "another implementation ran instead of the backend's kernel",
        "register the kernel for this dtype and layout, or forbid the fallback",
    ),
    Reason.COMPILE: Meaning(
        "the kernel did not compile",
        "read the compiler's output; run the build command by hand",
    ),
    Reason.SIGNAL: Meaning(
        "a signal ended the process",
        "SIGSEGV: invalid pointer; SIGFPE: integer division by zero; SIGABRT: failed assertion; SIGKILL: often out of "
        "memory; run the command below with --isolate none under a debugger or sanitizer",
    ),
    Reason.EXIT_CODE: Meaning(
        "a process exited with a status other than 0",
        "run the command by hand and read its stderr",
    ),
    Reason.DEADLINE: Meaning(
        "the call exceeded its time limit and was killed",
        "look for a deadlock or endless loop, or raise --timeout",
    ),
    Reason.OUT_OF_MEMORY: Meaning(
        "the call ran out of memory",
        "use a smaller shape or fewer --jobs, or free the memory of earlier cases",
    ),
    Reason.DEVICE_LOST: Meaning(
        "the device stopped responding",
        "read the system log, reset the device, and run only this case",
    ),
    Reason.RAISED: Meaning(
        "the backend raised an exception",
        "see the traceback",
    ),
    Reason.UNSUPPORTED: Meaning(
        "the backend declares that it does not support this case",
        "nothing was tested; remove the case, or implement it in the backend",
    ),
    Reason.UNAVAILABLE: Meaning(
        "a package, program or device that the case needs is missing",
        "run `optest doctor` to see what is missing",
    ),
    Reason.REFERENCE_FAILED: Meaning(
        "the reference itself failed",
        "repair the reference or the case; the backend was not tested",
    ),
    Reason.BAD_CASE: Meaning(
        "the case cannot be run as written",
        "repair the plan or the generator; the backend is not at fault",
    ),
    Reason.INTERNAL: Meaning(
        "optest itself failed",
        "please report it with the journal; the verdict is not valid",
    ),
}

STATUS_MEANINGS: dict[Status, Meaning] = {
    Status.XPASSED: Meaning(
        "the case passed, but the plan expects it to fail",
        "remove the xfail from the plan",
    ),
    Status.SUSPECT: Meaning(
        "the case passed only after a retry, or its pass is inconclusive; or a retry was skipped, xfailed or unchecked "
        "and would hide the crash before it",
        "run only this case, several times: --rounds",
    ),
    Status.UNCHECKED: Meaning(
        "the case ran, but nothing was compared",
        "add a reference to the operator or the case",
    ),
}

# By the name that the failure block has in parentheses after the rule.
RULE_MEANINGS: dict[str, Meaning] = {
    "movement": Meaning(
        "the operator only moves elements, so bits are compared; NaN equals NaN",
        "look for a conversion, or for arithmetic such as 0 - x that loses the sign of zero",
    ),
    "exact": Meaning(
        "only one result is right: the exact result, rounded once",
        "look for an intermediate rounding, or a comparison in another dtype than that of the inputs",
    ),
    "integer-exact": Meaning(
        "the inputs are integers so small that any order of summation yields the exact sum, rounded once",
        "rounding cannot explain an error: look for elements that are omitted, added twice or read at a wrong position",
    ),
    "ulp": Meaning(
        "an elementwise function may be off by some units in the last place; the rule has their number and its source",
        "compare the function's algorithm with that source, first of all for large arguments",
    ),
    "accumulate": Meaning(
        "the bound of a sum grows with the square root of its length and with Σ|terms|; a statistic limits all errors "
        "together",
        "accumulate in a wider dtype, or declare the backend's accumulator by Numerics(accumulator=...)",
    ),
    "composed": Meaning(
        "the bound is the sum of the errors that each step of the operator may have; the rule's text has the formula",
        "look for a step that rounds to the inputs' dtype; if that is intended, set a tolerance for the operator",
    ),
    "close": Meaning(
        "the function has no rule, so torch.testing's rtol and atol of the dtype apply",
        "set a tolerance, or add a rule to the descriptor",
    ),
    "tolerance": Meaning(
        "an explicit rtol and atol replace the operator's rule: |error| <= atol + rtol·|expected|",
        "run `optest explain` with the case to see where they are set; without them the operator's rule applies",
    ),
}


def named_meanings() -> dict[str, Meaning]:
    """Return all meanings by the names that `optest explain` accepts: ``VALUE``, ``suspect``, ``rule:ulp``."""
    reasons = {reason.value: meaning for reason, meaning in MEANINGS.items()}
    statuses = {status.value: meaning for status, meaning in STATUS_MEANINGS.items()}
    return reasons | statuses | {f"rule:{name}": meaning for name, meaning in RULE_MEANINGS.items()}


# Details of a verdict, with the names of backend and operator.
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecificRemedy:
    """Remedy for a ``reason`` if ``applies`` to the facts; ``{names}`` in its text are replaced by facts."""

    reason: Reason
    applies: Callable[[Facts], bool]
    remedy: str


def _has(*names: str) -> Callable[[Facts], bool]:
    return lambda facts: all(name in facts for name in names)


# The first one that applies is shown.
SPECIFIC_REMEDIES = (
    *(
        SpecificRemedy(reason=reason, applies=_has("waive"), remedy="if this is intended, {waive} skips the check")
        for reason in (Reason.SHAPE, Reason.DTYPE, Reason.WRONG_DEVICE, Reason.NAN)
    ),
    SpecificRemedy(
        reason=Reason.INPUT_MUTATED,
        applies=lambda facts: facts.get("backend") == "scene",
        remedy="write to a copy, or declare the tensor D.INOUT in the signature of the scene",
    ),
    SpecificRemedy(
        reason=Reason.INPUT_MUTATED,
        applies=lambda facts: facts.get("backend") in ("ffi", "infiniop"),
        remedy="write to a copy; if an output may be this input, list it under `in_place` of the mapping",
    ),
    SpecificRemedy(
        reason=Reason.INPUT_MUTATED,
        applies=_has("by_reference"),
        remedy="write to a copy; the function of --reference changes only {by_reference}",
    ),
    SpecificRemedy(
        reason=Reason.INPUT_MUTATED,
        applies=_has("decorator"),
        remedy="write to a copy; if the function returns its outputs in these inputs, declare it: {decorator}",
    ),
    SpecificRemedy(
        reason=Reason.OUT_OF_BOUNDS,
        applies=_has("refused_output"),
        remedy="check all arguments before the first write: the caller may still use the values of {refused_output}",
    ),
    SpecificRemedy(
        reason=Reason.STATE,
        applies=_has("view_of"),
        remedy="return a view if the model does, since writes to one of the two must change the other; if the "
        "compiler copies on purpose, mark the case with `mark: xfail`",
    ),
    SpecificRemedy(
        reason=Reason.STATE,
        applies=_has("printed"),
        remedy="remove the output, or print only if an option is set: the text appears in the output of programs that "
        "use the library, and printing takes longer than a small kernel",
    ),
    SpecificRemedy(
        reason=Reason.STATE,
        applies=_has("float_mode"),
        remedy="save rounding mode, flush-to-zero and traps at the start of the call and restore them before each "
        "return; they change all later results of the process",
    ),
    SpecificRemedy(
        reason=Reason.STATE,
        applies=_has("selected_device"),
        remedy="select the device only after checking that it exists, or select the previous one before returning the "
        "error",
    ),
    SpecificRemedy(
        reason=Reason.UNAVAILABLE,
        applies=_has("not_run"),
        remedy="build it, or repair its properties in CMakeLists.txt; if resources are missing, list more devices in "
        "--device, request less in RESOURCE_GROUPS, or give their name of a device by --resource-type",
    ),
    SpecificRemedy(
        reason=Reason.SIGNAL,
        applies=_has("command"),
        remedy="run the command by hand under a debugger or sanitizer; SIGKILL is often caused by a lack of memory",
    ),
    SpecificRemedy(
        reason=Reason.EXIT_CODE,
        applies=lambda facts: "exit_code" in facts and "command" not in facts,
        remedy="look for exit, _exit and quick_exit in the library: it should return an error instead of ending the "
        "process; to stop at the call, run `gdb --args python -m optest` with the arguments below and --isolate none, "
        "then `catch syscall exit_group`",
    ),
    SpecificRemedy(
        reason=Reason.RAISED,
        applies=_has("function", "status"),
        remedy="find out why {function} returns {status}: operator and mapping allow this call; if the library has no "
        "such kernel, remove it from the mapping (dtypes, ranks) or list that status under `unsupported`",
    ),
    SpecificRemedy(reason=Reason.RAISED, applies=_has("hint"), remedy="{hint}"),
    SpecificRemedy(
        reason=Reason.RAISED,
        # Triton's messages for tensors of the CPU.
        applies=lambda facts: re.search("active drivers|accessed from Triton", str(facts.get("exception"))) is not None,
        remedy="Triton does not compile for tensors on the CPU: use --backend triton, which takes the accelerator or, "
        "if there is none, Triton's interpreter (TRITON_INTERPRET=1)",
    ),
    SpecificRemedy(
        reason=Reason.RAISED,
        # Assertions of kernels, and torch's message if it has no CUDA.
        applies=lambda facts: (
            facts.get("backend") == "triton"
            and re.search("is_cuda|cuda['\"]|with CUDA", f"{facts.get('exception')} {facts.get('traceback_tail')}")
            is not None
        ),
        remedy="without a GPU, kernels are interpreted with tensors on the CPU: create new tensors on the inputs' "
        "device (device=x.device), and remove the assertion",
    ),
    SpecificRemedy(
        reason=Reason.RAISED,
        applies=lambda facts: facts.get("backend") in ("function", "triton") and bool(facts.get("traceback_tail")),
        remedy="see the traceback; if the function does not support the call, raise NotImplementedError: the case is "
        "then skipped as unsupported",
    ),
    SpecificRemedy(
        reason=Reason.RAISED,
        applies=lambda facts: not facts.get("traceback_tail"),
        remedy="reproduce it with the command below",
    ),
    SpecificRemedy(
        reason=Reason.WRONG_ERROR,
        applies=_has("contradicted_by"),
        remedy="repair the case: {contradicted_by} is right; set type and match of its expects_error accordingly",
    ),
    SpecificRemedy(
        reason=Reason.NOT_REFUSED,
        applies=_has("contradicted_by"),
        remedy="repair the case: {contradicted_by} is right; use inputs that are refused, or remove its expects_error",
    ),
    SpecificRemedy(
        reason=Reason.BAD_CASE,
        applies=_has("built_in_mapping"),
        remedy="no kernel is at fault: the built-in mapping was written for other headers. Copy its file, change the "
        "call to what the header declares, and select the copy by --mapping; `optest ffi inspect` with --mapping lists "
        "all such differences",
    ),
    SpecificRemedy(
        reason=Reason.BAD_CASE,
        applies=_has("mapping"),
        remedy="no kernel is at fault: mapping and header disagree. Change {mapping} to what the header declares; "
        "`optest ffi inspect` with --mapping lists all such differences",
    ),
)


def remedy_of(reason: Reason, facts: Facts) -> str:
    """Return the first specific remedy that applies to the facts, else the remedy of the reason; no full stop."""
    for specific in SPECIFIC_REMEDIES:
        if specific.reason is reason and specific.applies(facts):
            return specific.remedy.format_map({name: printable(str(value)) for name, value in facts.items()})
    return MEANINGS[reason].remedy
