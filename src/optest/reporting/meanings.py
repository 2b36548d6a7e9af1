"""What every reason means in one sentence, and what to try: of the reason, or of narrower facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optest.reporting.typography import printable
from optest.spec import Reason, Status


@dataclass(frozen=True, slots=True)
class Meaning:
    """``sentence`` says what happened, ``remedy`` where to look first; no full stops. docs/reasons says why."""

    sentence: str
    remedy: str


MEANINGS: dict[Reason, Meaning] = {
    Reason.VALUE: Meaning(
        "elements of an output lie outside what the rule allows",
        "look at where they lie: a tail, a tile, one row, or everywhere",
    ),
    Reason.NAN: Meaning(
        "NaN is where the reference has none, or the other way round",
        "look for division by zero, overflow, missing max-subtraction, or memory that was never written",
    ),
    Reason.SHAPE: Meaning(
        "an output has another shape than the operator yields",
        "check reduced, broadcast and size-1 dimensions",
    ),
    Reason.DTYPE: Meaning(
        "an output has another dtype than the operator yields",
        "optest never casts silently; cast in the backend",
    ),
    Reason.MISSING_OUTPUT: Meaning(
        "an output of the operator was not delivered",
        "return every output, in order or by name",
    ),
    Reason.EXTRA_OUTPUT: Meaning(
        "something was returned that the operator does not have",
        "return the operator's outputs and nothing else",
    ),
    Reason.NOTHING_COMPARED: Meaning(
        "not one element was compared, so nothing was shown",
        "check the shapes, or declare the output as empty",
    ),
    Reason.INPUT_MUTATED: Meaning(
        "the call changed an input",
        "write to a copy, or declare the input: `mutates` of an operator, `in_place` of `@optest.kernel`",
    ),
    Reason.OUT_OF_BOUNDS: Meaning(
        "memory beside an output was written",
        "check the mask of the last block (sizes that are no multiple of the tile), and each stride",
    ),
    Reason.READ_OUT_OF_BOUNDS: Meaning(
        "memory beside an input was read",
        "check the mask of the last block (sizes that are no multiple of the tile), and each stride",
    ),
    Reason.UNWRITTEN: Meaning(
        "elements of an output were never written",
        "check the tail, and that the launch covers every element",
    ),
    Reason.WORKSPACE: Meaning(
        "the workspace that the size query gave and the one that was used differ",
        "compare the size query with the kernel",
    ),
    Reason.STATE: Meaning(
        "the answer depends on what ran before, or the call left the process in another state",
        "keep nothing from one call for the next (results, accumulators, caches); put back what the call sets",
    ),
    Reason.NONDETERMINISTIC: Meaning(
        "a repeated call left the rule, or gave other bits though the backend declares itself invariant; or tasks of a "
        "scene use the same memory without an order",
        "look for random numbers, races, shared buffers and atomics; if only bits differ, take `invariant` back",
    ),
    Reason.INVARIANT: Meaning(
        "an element of the batch has another result in another batch or place, or a captured program is not in order",
        "look at what elements, or captures, share: reductions over a wrong dimension, last blocks, indices, buffers",
    ),
    Reason.LEAK: Meaning(
        "memory or handles were not given back",
        "free what the call allocates, also when it fails",
    ),
    Reason.SANITIZER: Meaning(
        "a sanitizer reported a fault",
        "read its report; the values may look right all the same",
    ),
    Reason.NOT_REFUSED: Meaning(
        "a call that should be refused was accepted",
        "check dtypes, shapes, strides, pointers and attributes before computing",
    ),
    Reason.WRONG_ERROR: Meaning(
        "the call was refused with another error than expected",
        "raise the expected type, with a text that says why",
    ),
    Reason.WRONG_DEVICE: Meaning(
        "an output lies on another device than the run's",
        "allocate outputs on the inputs' device",
    ),
    Reason.FALLBACK: Meaning(
        "another implementation answered in place of the backend's own",
        "register the kernel for this dtype and layout, or forbid the fallback",
    ),
    Reason.COMPILE: Meaning(
        "the kernel did not compile",
        "read the compiler's output; run the build command by hand",
    ),
    Reason.SIGNAL: Meaning(
        "a signal ended the process",
        "SIGSEGV is a wild pointer, SIGFPE an integer divided by zero, SIGABRT a failed assertion, SIGKILL often a "
        "lack of memory; run the line below with --isolate none under a debugger or sanitizer",
    ),
    Reason.EXIT_CODE: Meaning(
        "a process ended with another exit status than 0",
        "run the command by hand and read its stderr",
    ),
    Reason.DEADLINE: Meaning(
        "no answer came in time, so it was ended",
        "look for a deadlock or endless loop, or raise --timeout",
    ),
    Reason.OUT_OF_MEMORY: Meaning(
        "memory ran out",
        "use a smaller shape, fewer --jobs, or free what earlier cases hold",
    ),
    Reason.DEVICE_LOST: Meaning(
        "the device stopped answering",
        "reset it, look into the system log, and run the case alone",
    ),
    Reason.RAISED: Meaning(
        "the backend raised an exception",
        "read the traceback; the line below raises it again",
    ),
    Reason.UNSUPPORTED: Meaning(
        "the backend says that it cannot run this case",
        "nothing was shown; leave the case out or teach the backend",
    ),
    Reason.UNAVAILABLE: Meaning(
        "something that is needed is not there",
        "`optest doctor` says what is missing",
    ),
    Reason.REFERENCE_FAILED: Meaning(
        "the reference itself failed",
        "nothing is known about the backend; repair the reference or the case",
    ),
    Reason.BAD_CASE: Meaning(
        "the case cannot be carried out as it is written",
        "repair the plan or the generator; no backend was at fault",
    ),
    Reason.INTERNAL: Meaning(
        "optest itself is at fault",
        "please report it with the journal; the verdict says nothing",
    ),
}

STATUS_MEANINGS: dict[Status, Meaning] = {
    Status.XPASSED: Meaning(
        "the case passed, but was expected not to",
        "take the xfail out of the plan",
    ),
    Status.SUSPECT: Meaning(
        "it passed, but only after a retry or in a way that proves little; or a retry ended otherwise well "
        "(skipped, xfailed, unchecked) and would hide the crash before it",
        "run it alone, with --rounds",
    ),
    Status.UNCHECKED: Meaning(
        "it ran, but nothing was compared",
        "give the operator or the case a reference",
    ),
}

RULE_MEANINGS: dict[str, Meaning] = {
    "movement": Meaning(
        "elements move and never change, so that bits are compared; NaN equals NaN",
        "look for a conversion on the way, or for arithmetic such as 0 - x that loses the sign of zero",
    ),
    "exact": Meaning(
        "there is one right answer: the exact result, rounded once",
        "look for a step that rounds, or a comparison in another dtype than that of the inputs",
    ),
    "integer-exact": Meaning(
        "the inputs are whole numbers so small that every order of summation gives the exact sum, rounded once",
        "no rounding explains an error here: look for elements that are left out, taken twice or taken from elsewhere",
    ),
    "ulp": Meaning(
        "an elementwise function may be some units in the last place off; the rule says how many and by whom",
        "compare the function's algorithm with that source, most of all for far arguments",
    ),
    "accumulate": Meaning(
        "the bound of a sum grows with the root of its length and with Σ|terms|; all errors together have a limit, too",
        "accumulate in more bits, or declare the backend's accumulator by Numerics(accumulator=...)",
    ),
    "composed": Meaning(
        "the operator adds up what each of its steps may lose; the rule's text has the formula",
        "look for a step that rounds to the inputs' dtype; if that is on purpose, state a tolerance for the operator",
    ),
    "close": Meaning(
        "nothing else is known of the function, so that torch.testing's rtol and atol of the dtype are taken",
        "state a tolerance of your own, or give the descriptor a rule",
    ),
    "tolerance": Meaning(
        "somebody stated rtol and atol in the place of the operator's rule: |error| <= atol + rtol·|expected|",
        "`optest explain` with the case says who; without it the operator's rule judges",
    ),
}
"""By the name that a failure has in parentheses behind its rule."""


def named_meanings() -> dict[str, Meaning]:
    """What can be explained, by its name: ``VALUE``, ``suspect``, ``rule:ulp``."""
    reasons = {reason.value: meaning for reason, meaning in MEANINGS.items()}
    statuses = {status.value: meaning for status, meaning in STATUS_MEANINGS.items()}
    return reasons | statuses | {f"rule:{name}": meaning for name, meaning in RULE_MEANINGS.items()}


Facts = Mapping[str, Any]
"""Details of a verdict, and the name of the backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrower:
    """What to try for ``reason`` where ``applies`` to the facts; ``{names}`` in the remedy are facts."""

    reason: Reason
    applies: Callable[[Facts], bool]
    remedy: str


def _has(*names: str) -> Callable[[Facts], bool]:
    return lambda facts: all(name in facts for name in names)


NARROWER = (
    *(
        Narrower(reason=reason, applies=_has("waive"), remedy="{waive} skips this check, if that is intended")
        for reason in (Reason.SHAPE, Reason.DTYPE, Reason.WRONG_DEVICE, Reason.NAN)
    ),
    Narrower(
        reason=Reason.INPUT_MUTATED,
        applies=lambda facts: facts.get("backend") == "scene",
        remedy="write to a copy, or declare the tensor D.INOUT in the signature of the scene",
    ),
    Narrower(
        reason=Reason.INPUT_MUTATED,
        applies=lambda facts: facts.get("backend") in ("ffi", "infiniop"),
        remedy="write to a copy; if an output may be this input, name it under `in_place` of the mapping",
    ),
    Narrower(
        reason=Reason.INPUT_MUTATED,
        applies=_has("by_reference"),
        remedy="write to a copy; the function of --reference changes only {by_reference}",
    ),
    Narrower(
        reason=Reason.INPUT_MUTATED,
        applies=_has("decorator"),
        remedy="write to a copy; if its outputs are to be there, in their order: {decorator}",
    ),
    Narrower(
        reason=Reason.OUT_OF_BOUNDS,
        applies=_has("refused_output"),
        remedy="look at every argument before the first write: a caller may go on with what was in {refused_output}",
    ),
    Narrower(
        reason=Reason.STATE,
        applies=_has("view_of"),
        remedy="return a view where the model does: what is written into one of the two is seen in the other; for a "
        "compiler that is meant to copy, the case says mark: xfail",
    ),
    Narrower(
        reason=Reason.STATE,
        applies=_has("printed"),
        remedy="take the printing out of the call, or put it behind a switch that is off: whoever embeds the library "
        "finds these lines between their own, and printing takes longer than a small kernel",
    ),
    Narrower(
        reason=Reason.STATE,
        applies=_has("float_mode"),
        remedy="save the rounding mode, flush-to-zero and traps when the call begins and put them back on every way "
        "out; what the process computes afterwards is rounded by them",
    ),
    Narrower(
        reason=Reason.STATE,
        applies=_has("selected_device"),
        remedy="select the device only after it was found to be there, or select the former one again before the error "
        "is returned",
    ),
    Narrower(
        reason=Reason.UNAVAILABLE,
        applies=_has("not_run"),
        remedy="build it, or repair its properties in CMakeLists.txt; where resources are lacking, widen --device, ask "
        "for less in RESOURCE_GROUPS, or say by --resource-type how these call a device",
    ),
    Narrower(
        reason=Reason.SIGNAL,
        applies=_has("command"),
        remedy="run the command by hand under a debugger or sanitizer; SIGKILL is often a lack of memory",
    ),
    Narrower(
        reason=Reason.EXIT_CODE,
        applies=lambda facts: "exit_code" in facts and "command" not in facts,
        remedy="look for exit, _exit and quick_exit in what was called: it should return an error in place of ending "
        "its caller; `gdb --args python -m optest` with the line below and --isolate none, then `catch syscall "
        "exit_group`, stops where it happens",
    ),
    Narrower(
        reason=Reason.RAISED,
        applies=_has("function", "status"),
        remedy="look for what makes {function} return {status}: operator and mapping allow this call; if the library "
        "has no such kernel, take it out of the mapping (dtypes, ranks) or name that status under `unsupported`",
    ),
    Narrower(reason=Reason.RAISED, applies=_has("hint"), remedy="{hint}"),
    Narrower(
        reason=Reason.RAISED,
        applies=lambda facts: re.search("active drivers|accessed from Triton", str(facts.get("exception"))) is not None,
        remedy="Triton compiles nothing for tensors of the CPU: --backend triton takes the accelerator or, if there is "
        "none, its interpreter (TRITON_INTERPRET=1)",
    ),
    Narrower(
        reason=Reason.RAISED,
        applies=lambda facts: (
            facts.get("backend") == "triton"
            and re.search("is_cuda|cuda['\"]|with CUDA", f"{facts.get('exception')} {facts.get('traceback_tail')}")
            is not None
        ),
        remedy="there is no GPU here, so that the kernels are interpreted and tensors are on the CPU: put new tensors "
        "where the inputs are, as device=x.device does, and leave out the assertion",
    ),
    Narrower(
        reason=Reason.RAISED,
        applies=lambda facts: facts.get("backend") in ("function", "triton") and bool(facts.get("traceback_tail")),
        remedy="read the traceback; if the call is not meant for it, raise NotImplementedError, and the call is a gap",
    ),
    Narrower(
        reason=Reason.RAISED,
        applies=lambda facts: not facts.get("traceback_tail"),
        remedy="the line below raises it again",
    ),
    Narrower(
        reason=Reason.WRONG_ERROR,
        applies=_has("contradicted_by"),
        remedy="{contradicted_by} says what is right, so it is the case that has to change: make type and match of its "
        "expects_error what is said there",
    ),
    Narrower(
        reason=Reason.NOT_REFUSED,
        applies=_has("contradicted_by"),
        remedy="{contradicted_by} says what is right, so it is the case that has to change: give it inputs that are "
        "refused, or take its expects_error away",
    ),
    Narrower(
        reason=Reason.BAD_CASE,
        applies=_has("built_in_mapping"),
        remedy="no kernel was at fault: these are not the headers that the built-in mapping was written for. Copy its "
        "file, make the call what the header declares, and name the copy by --mapping; `optest ffi inspect` with "
        "--mapping tells every such place at once",
    ),
    Narrower(
        reason=Reason.BAD_CASE,
        applies=_has("mapping"),
        remedy="no kernel was at fault: mapping and header disagree. Make {mapping} what the header declares; `optest "
        "ffi inspect` with --mapping tells every such place at once",
    ),
)
"""The first that applies is told."""


def remedy_of(reason: Reason, facts: Facts) -> str:
    """What to try for a failure with these facts; no full stop."""
    for each in NARROWER:
        if each.reason is reason and each.applies(facts):
            return each.remedy.format_map({name: printable(str(value)) for name, value in facts.items()})
    return MEANINGS[reason].remedy
