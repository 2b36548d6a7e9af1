"""Text of a failure: actual and expected values, the rule, locations, diagnosis, remedy, reproduction command."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from optest.errors import plural
from optest.reporting.block_map import map_lines
from optest.reporting.meanings import MEANINGS, STATUS_MEANINGS, Meaning, remedy_of
from optest.reporting.patterns import layout_text, layouts_of, output_layouts
from optest.reporting.typography import clip, duration, index_text, number, printable, tell_apart
from optest.spec import CaseResult, Check, CheckState, Measure, Reason, RuleUsed, Status, Timings, dtype

# Lines of a traceback that only underline the line above: they would take half of the few lines that are shown.
_UNDERLINES = re.compile(r"^[ ^~]*[\^~][ ^~]*\n?", re.M)
_SHOWN_OUTPUTS = 6
_SHOWN_DETAILS = 8
_MESSAGE_LINES = 12
_DESCRIPTION_LINES = 6
_TAIL_LINES = 15
# Of the _TAIL_LINES of captured output, the number taken from its beginning: the cause is often printed first.
_FIRST_LINES = 8
# Number of lines shown before the traceback that Python's faulthandler writes.
_BEFORE_A_DUMP = 4
_MAX_LAST_LINES = 16
# Minimum number of lines that are folded because they repeat the line before, apart from addresses.
_MIN_REPEATED = 3
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_DUMP = re.compile(r"^(?:Fatal Python error: |Current thread 0x)")
# Frames of optest in the traceback that Python's faulthandler writes when a process dies.
_OPTEST_FRAME = re.compile(
    r'^ *File "(?:.*[/\\]optest[/\\]'
    r"(?:api|backends|cli|clib|compare|core|infiniop|memory|numerics|operators|process|torch)[/\\].*\.py"
    r'|<frozen runpy>)", line [0-9]+ in ',
)
_WORKER_FRAME = os.path.join("optest", "core", "worker.py")
_EXTENSIONS = re.compile(r"^(?:Extension modules: .*\(total: [0-9]+\)|<truncated rest of calls>)$")
_TAIL_WIDTH = 240
_FLUSHING = 'Numerics(denormals="flush")'

_LOST_NAN = (
    "the expected NaN got lost: comparisons with NaN are false, so code that selects elements must test for NaN; "
    "0 / 0, as in the mean of no elements, is NaN as well"
)
_NAN_OF_REFERENCE = (
    "the reference itself returns NaN for this call; if the call is outside of its domain, raise an error in the "
    "reference: such calls are skipped"
)
_NUMBER_FOR_NAN = "the operator returns a number for this NaN operand; docs/operators.md has the rule"

_HALVES = ("float16", "bfloat16")
# Rules of operators that may round intermediate results.
_STEPWISE_RULES = ("ulp", "composed")
_FEW_ULP = 8
# Detail of results that have too few roundings, not too many.
_ROUNDS_LESS = "integer_operands"

# Reasons whose facts are all in the measures.
_COMPARED = frozenset({Reason.VALUE, Reason.NAN})
# Details that have lines of their own, or that only programs read.
_NOT_LISTED = frozenset(
    {
        *("command", "stderr_tail", "stdout_tail", "traceback_tail", "strays", "waive", "repeated", "torch", "hint"),
        *("exception", "exception_types", "timeout_s", "printed", "how", "diagnosis", "not_run", "suggested_tolerance"),
        "decorator",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Facts about a failure in addition to its result: all that a failure block has and the result lacks.

    ``meaning`` is a sentence for a result without a message, else "". ``hints`` are sentences about wrong outputs, by
    output. ``output_layouts`` are strides and offsets that the case sets for outputs. ``remedy`` is the first thing to
    do, "" if there is no common one. ``pattern`` describes which cases of the operator fail, "" if unknown.
    """

    meaning: str
    hints: Mapping[str, Sequence[str]]
    output_layouts: Mapping[str, Mapping[str, Any]]
    remedy: str
    pattern: str


def explanation_of(result: CaseResult, pattern: str = "", *, always_fails: bool = False) -> Explanation:
    """Return the facts that reports derive from a failure.

    ``pattern`` is that of the group of the failure. If the operator ``always_fails``, the layout of this case is not
    suggested as the cause.
    """
    meaning = _meaning_of(result)
    details = result.verdict.details
    with_layout = not always_fails and "refused_output" not in details
    return Explanation(
        meaning=meaning.sentence if meaning is not None and not result.verdict.message else "",
        hints={
            measure.output: hints
            for measure in result.verdict.measures
            if (hints := _hints(measure, rounds_less=_ROUNDS_LESS in details))
        },
        output_layouts=output_layouts(result),
        remedy=_remedy_text(result, _layout_remedy(result) if with_layout else ""),
        pattern=pattern,
    )


def explain(result: CaseResult, explanation: Explanation | None = None, *, with_map: bool = False) -> list[str]:
    """Return the failure block of a result: the headline first, the reproduction command last.

    ``explanation`` is :func:`explanation_of` the result unless it is given. ``with_map`` adds a map of wrong elements
    in block characters.
    """
    facts = explanation or explanation_of(result)
    verdict = result.verdict
    lines = [headline(result), *_identifier_line(result)]
    measured = _measured(verdict.measures, result.reason, facts.hints)
    if not measured or result.reason not in _COMPARED:
        lines += _message(result, facts.meaning)
    elif how := _how(result):
        lines.append(f"  the first call is right; this one is wrong ({how}):")
    lines += [*measured, *(map_lines(result) if with_map else ())]
    if diagnosis := detail_texts(verdict.details.get("diagnosis")):
        lines.append(f"  diagnosis: {printable('; '.join(diagnosis))}")
    lines += [
        f"  {printable(text)}" for key in ("repeated", "torch") for text in detail_texts(verdict.details.get(key))
    ]
    description = _description(result)
    lines += [f"  {printable(path)}: {layout_text(spec)}" for path, spec in layouts_of(result).items()]
    for name, layout in facts.output_layouts.items():
        offset = f", offset {layout['offset']}" if layout.get("offset") else ""
        lines.append(printable(f"  output {name}: strides {list(layout['strides'])}{offset}"))
    lines += description
    wrong = [check for check in verdict.checks if check.state in (CheckState.FAILED, CheckState.INCONCLUSIVE)]
    lines += [f"  check {check.name}: {printable(check.detail)}" for check in wrong]
    known = "\n".join([verdict.message, *description])
    lines += _details(verdict.details, known, all_frames=result.reason is Reason.INTERNAL)
    if result.attempts > 1:
        lines.append(f"  attempts: {result.attempts}")
    if result.duplicate_of:
        lines.append(f"  shares its execution with {printable(result.duplicate_of)}")
    lines += [f"  {facts.remedy}"] if facts.remedy else []
    lines += [f"  fails: {facts.pattern}"] if facts.pattern else []
    if result.repro:
        lines.append(f"  reproduce: {printable(result.repro)}")
    return lines


def headline(result: CaseResult) -> str:
    """Return ``FAILED  matmul[float16](64x128, 128x32)  torch:cpu against numpy``."""
    against = f" against {result.reference}" if result.reference not in ("", "none") else ""
    repetition = f", round {result.round + 1}" if result.round else ""
    return printable(f"{result.status.value.upper()}  {result.id}  {result.target}{against}{repetition}")


def progress_text(result: CaseResult) -> str:
    """Return the text that follows the name in a line of progress: the reason, and why a case was skipped or erred."""
    reason = result.reason.value if result.reason else ""
    if result.status is Status.PASSED or (result.status in (Status.FAILED, Status.XFAILED) and reason):
        return reason
    first = _first_words(printable(result.verdict.message).split("\n"))
    return clip(": ".join(part for part in (reason, first) if part), 120)


def _first_words(lines: Sequence[str]) -> str:
    """Return the first line; if it ends with a colon, such as ``does not compile:``, with the second line."""
    first = lines[0].strip() if lines else ""
    return f"{first} {lines[1].strip()}" if first.endswith(":") and len(lines) > 1 else first


def gist(result: CaseResult) -> str:
    """Return a failure in one line: the reason, then the first line of the measures, message or description."""
    lines = _measured(result.verdict.measures, result.reason, {})
    how = ""
    if must_be_refused(result) and (description := _description(result)):
        lines = description
    elif not lines or result.reason not in _COMPARED:
        lines = [*_message(result, explanation_of(result).meaning), *lines]
    elif how := _how(result):
        how += ": "
    first = how + _first_words(lines) if lines else ""
    return clip(": ".join(part for part in (result.reason.value if result.reason else "", first) if part), 200)


def measure_lines(measure: Measure, hints: Sequence[str] = ()) -> list[str]:
    """Return the lines about one output: number of wrong elements, the worst element, the rule, locations, hints."""
    lines = [f"  {printable(measure.output)}: {_errors_text(measure)}"]
    if measure.rule is not None:
        lines.append(f"  rule: {rule_text(measure.rule)}")
    if 0 < measure.nonfinite_mismatched < measure.mismatched:
        lines.append(f"  {measure.nonfinite_mismatched} of them: NaN or infinity instead of a number, or the reverse")
    if measure.where:
        lines.append(f"  {printable(measure.where)}")
    return lines + [f"  {hint}" for hint in hints]


def _hints(measure: Measure, *, rounds_less: bool) -> list[str]:
    """Return sentences about a probable cause: subnormal numbers that are flushed, or results rounded to 16 bits.

    The second is not given if the output is known to have too few roundings (``rounds_less``).
    """
    hints = []
    if _is_flushed(measure):
        hints.append(
            "the worst element is 0, expected a subnormal number; "
            f"if the device flushes subnormal numbers, declare {_FLUSHING}"
        )
    if not rounds_less and looks_rounded_between(measure):
        hints += [
            f"errors of a few ulp: intermediate results may be rounded to {measure.dtype}; "
            "the expected values are computed in float32 and rounded once, at the end",
            f'if that is intended, declare numerics=optest.testing.Numerics(accumulator="{measure.dtype}")',
        ]
    return hints


def looks_rounded_between(measure: Measure) -> bool:
    """Return whether the errors may come from intermediate results rounded to 16 bits: they are at most 8 ulp."""
    if measure.dtype not in _HALVES or not measure.mismatched or measure.nonfinite_mismatched:
        return False
    has_few_ulp = measure.max_ulp_error is not None and measure.max_ulp_error <= _FEW_ULP
    return has_few_ulp and measure.rule is not None and measure.rule.name in _STEPWISE_RULES


def _is_flushed(measure: Measure) -> bool:
    """Return whether the worst element is 0 and its expected value is a subnormal number of the dtype."""
    expected = measure.worst_expected
    if not measure.mismatched or measure.worst_actual != 0 or not isinstance(expected, float):
        return False
    entry = dtype(measure.dtype)
    # 2**emin is the smallest normal number.
    return entry.is_float and 0 < abs(expected) < 2.0**entry.emin


def checks_text(checks: Iterable[Check]) -> list[str]:
    """Return a line for each state (done, failed, not possible) with the names of its checks and their details."""
    by_state: dict[CheckState, list[str]] = {}
    for check in checks:
        detail = "" if check.state is CheckState.DONE or not check.detail else f" ({printable(check.detail)})"
        by_state.setdefault(check.state, []).append(f"{check.name}{detail}")
    return [f"{state.value}: {', '.join(names)}" for state, names in by_state.items()]


def timings_text(timings: Timings) -> str:
    """Return ``generate 0.1 ms, run 0.8 ms``, with the phases that were timed."""
    phases = ("generate", "reference", "compile", "run", "compare")
    spent = ((phase, getattr(timings, f"{phase}_s")) for phase in phases)
    return ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in spent if seconds is not None)


def _identifier_line(result: CaseResult) -> list[str]:
    """Return a line with the identifier of a case and its source; [] for built-in cases named by their identifier."""
    is_built_in = result.where.startswith("optest.")
    if not result.identifier or (is_built_in and result.id.endswith(result.identifier.removeprefix(result.operator))):
        return []
    where = f", {result.where}" if result.where and not is_built_in else ""
    return [printable(f"  case: {result.identifier}{where}")]


def _description(result: CaseResult) -> list[str]:
    """Return the plan's description of a case; for a call that must be refused, the error in the call."""
    is_wrong = must_be_refused(result)
    text = result.description or (str(result.verdict.details.get("why") or "") if is_wrong else "")
    first, *rest = [clip(line, _TAIL_WIDTH) for line in _stripped_lines(text)] or [""]
    title = "wrong on purpose" if is_wrong else "description"
    return [f"  {title}: {first}", *_beginning(rest, _DESCRIPTION_LINES)] if first else []


def must_be_refused(result: CaseResult) -> bool:
    """Return whether the call of a case is wrong on purpose, so that the backend has to refuse it."""
    return result.reason is Reason.NOT_REFUSED or bool(result.case.get("expects_error"))


def _message(result: CaseResult, meaning: str) -> list[str]:
    """Return the lines of the message of a verdict; without a message, the ``meaning`` of its reason or status."""
    text = result.verdict.message or meaning
    if not text:
        return []
    first, *rest = printable(text).strip("\n").split("\n")
    return [f"  {first}", *_beginning(rest, _MESSAGE_LINES)]


def _beginning(lines: Sequence[str], limit: int) -> list[str]:
    """Return the first ``limit`` lines, indented, and the number of the remaining ones."""
    left = len(lines) - limit
    return [*(f"    {line}" for line in lines[:limit]), *([f"    … {plural(left, 'more line')}"] if left > 0 else [])]


def _how(result: CaseResult) -> str:
    """Return how the wrong call differs from the first one, which was right: ``with 2 threads``; else ""."""
    return printable(str(result.verdict.details.get("how") or ""))


def _measured(measures: Sequence[Measure], reason: Reason | None, hints: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of all wrong outputs, the first six in detail, with the hints for each output."""
    wrong = [measure for measure in measures if measure.is_off]
    # A verdict about values may rest on something else than the rule: then all outputs with a worst element are shown.
    if not wrong and reason in _COMPARED:
        wrong = [measure for measure in measures if measure.worst_index is not None]
    lines = [
        line for measure in wrong[:_SHOWN_OUTPUTS] for line in measure_lines(measure, hints.get(measure.output, ()))
    ]
    if len(wrong) > _SHOWN_OUTPUTS:
        names = clip(", ".join(printable(measure.output) for measure in wrong[_SHOWN_OUTPUTS:]), 200)
        lines.append(f"  and {plural(len(wrong) - _SHOWN_OUTPUTS, 'more output')}: {names}")
    return lines


def _errors_text(measure: Measure) -> str:
    """Return the number of wrong elements and the worst one, or the value and limit of the statistic over all elements.

    Such as ``3 of 8 elements are off; worst at [2]: got 0.1, expected 0.2 ± 0.01 (12 ulp, 10.0 x allowed)``.
    """
    if measure.is_off and not measure.mismatched:
        return (
            f"each element is within its bound, but together the errors are too large: "
            f"z is {number(measure.statistic, 3)}, expected {number(measure.statistic_limit, 3)} or less"
            f" (over {plural(measure.compared, 'element')}; caused by a bias, truncation or a narrow accumulator)"
        )
    if measure.compared == 1:
        count = "the only element is off"
    elif measure.mismatched == measure.compared:
        count = f"all {measure.compared} elements are off"
    else:
        are = "is" if measure.mismatched == 1 else "are"
        count = f"{measure.mismatched} of {plural(measure.compared, 'element')} {are} off"
    if measure.worst_actual is None and measure.worst_expected is None:
        return count
    at = f"worst at {index_text(measure.worst_index)}: " if measure.worst_index else ""
    got, expected = tell_apart(measure.worst_actual, measure.worst_expected, measure.dtype)
    bound = measure.worst_bound
    allowed = f" ± {number(bound, 2)}" if bound is not None and math.isfinite(bound) and bound > 0 else ""
    sizes = []
    if (ulp := measure.worst_ulp) is not None and math.isfinite(ulp):
        sizes.append(f"{round(ulp)} ulp" if 10 <= ulp < 1e5 else f"{ulp:.2g} ulp")
    if (factor := measure.worst_used) is not None and math.isfinite(factor):
        # A factor just above 1 needs more digits: it must not read 1.0.
        digits = ".3g" if factor < 1.1 else ".1f" if factor < 1000 else ".1e"
        sizes.append(f"{factor:{digits}} x allowed")
    aside = f" ({', '.join(sizes)})" if sizes else ""
    return f"{count}; {at}got {got}, expected {expected}{allowed}{aside}"


def rule_text(rule: RuleUsed) -> str:
    """Return the text of a rule with its name in parentheses; only the name if there is no text."""
    name = "" if not rule.name or rule.name == rule.text else f" ({rule.name})"
    return printable(f"{rule.text or rule.name}{name}")


def rules_text(measures: Iterable[Measure]) -> str:
    """Return the rules of all outputs, each once; with the names of the outputs if there are several rules."""
    by_rule: dict[str, list[str]] = {}
    for measure in measures:
        if measure.rule is not None:
            by_rule.setdefault(measure.rule.text or measure.rule.name, []).append(measure.output)
    if len(by_rule) == 1:
        return next(iter(by_rule))
    return "; ".join(f"{', '.join(outputs)}: {rule}" for rule, outputs in by_rule.items())


def detail_texts(detail: Any) -> list[str]:
    """Return a detail of a verdict as a list of texts; it may be one text, several or None."""
    return [detail] if isinstance(detail, str) and detail else list(map(str, detail or ()))


def _details(details: Mapping[str, Any], message: str, *, all_frames: bool) -> list[str]:
    """Return lines for the details of a verdict: facts that are not in ``message``, command, exception, traceback,
    captured output and child processes left running."""
    lines = [f"  {name.replace('_', ' ')}: {value}" for name, value in _listed_details(details, message)]
    if command := details.get("command"):
        words = command if isinstance(command, (list, tuple)) else None
        lines.append(f"  command: {printable(str(command) if words is None else shlex.join(map(str, words)))}")
    # Most messages quote the exception already.
    exception = str(details.get("exception") or "")
    if exception and exception not in message and (exception.partition(": ")[2] or exception) not in message:
        lines += _quoted("exception", exception)
    lines += _quoted("traceback", _UNDERLINES.sub("", str(details.get("traceback_tail") or "")))
    stderr = str(details.get("stderr_tail") or "")
    lines += _captured("stderr", stderr if all_frames else _without_optest_frames(stderr))
    # Causes are printed to stderr; stdout has the progress of the program.
    if not stderr.strip():
        lines += _captured("stdout", details.get("stdout_tail"))
    if strays := detail_texts(details.get("strays")):
        lines.append(f"  processes left running, killed: {clip(printable(', '.join(strays)), _TAIL_WIDTH)}")
    return lines


def _listed_details(details: Mapping[str, Any], message: str) -> list[tuple[str, str]]:
    """Return names and texts of at most eight details that have no separate lines and are not in ``message``."""
    facts = []
    for name, value in details.items():
        # "run" is the usual phase: nothing to report.
        if name in _NOT_LISTED or value in (None, "", [], {}) or (name, value) == ("phase", "run"):
            continue
        text = clip(printable(str(value)).replace("\n", " "), _TAIL_WIDTH)
        if text not in message:
            facts.append((printable(name), text))
    return facts[:_SHOWN_DETAILS]


def _quoted(title: str, text: Any) -> list[str]:
    """Return the last 15 lines of a text, indented under its title; [] for an empty text."""
    all_lines = _stripped_lines(text)
    if not all_lines:
        return []
    left = max(0, len(all_lines) - _TAIL_LINES)
    return [f"  {title}:", *([f"    … {plural(left, 'line')} before"] if left else []), *_indented(all_lines[left:])]


def _captured(title: str, text: Any) -> list[str]:
    """Return the captured output of a process under its title: all of it, or its first and last lines.

    Repeated lines are folded. If Python's faulthandler wrote a traceback, the last lines include the lines before it.
    """
    all_lines: list[str] = []
    for _, repeated in groupby(_stripped_lines(text), key=lambda line: _ADDRESS.sub("", line)):
        line, *alike = repeated
        all_lines += [line, f"… {len(alike)} more lines like it"] if len(alike) >= _MIN_REPEATED else [line, *alike]
    if not all_lines:
        return []
    dumped = next((len(all_lines) - index for index, line in enumerate(all_lines) if _DUMP.match(line)), 0)
    ending = max(_TAIL_LINES - _FIRST_LINES, min(dumped + _BEFORE_A_DUMP, _MAX_LAST_LINES) if dumped else 0)
    left = len(all_lines) - _FIRST_LINES - ending
    if left <= 0:
        return [f"  end of {title}:", *_indented(all_lines)]
    first, last = all_lines[:_FIRST_LINES], all_lines[_FIRST_LINES + left :]
    omitted = f"    … {plural(left, 'line')} omitted"
    return [f"  {title}, first and last lines:", *_indented(first), omitted, *_indented(last)]


def _stripped_lines(text: Any) -> list[str]:
    """Return the lines of a text, printable, without empty ones at both ends."""
    lines = [line.rstrip() for line in printable(str(text or "")).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {clip(line, _TAIL_WIDTH)}".rstrip() for line in lines]


def _without_optest_frames(text: str) -> str:
    """Return the traceback of a dying process with optest's frames replaced by their number."""
    kept: list[str] = []
    frames = 0
    is_below = False
    for line in [*text.split("\n"), ""]:
        # Frames below the worker's first one are of the process from which it was forked.
        if _OPTEST_FRAME.match(line) or (is_below and line.startswith("  File ")):
            frames += 1
            is_below = is_below or _WORKER_FRAME in line
            continue
        is_below = False
        if frames:
            kept.append(f"  … {plural(frames, 'frame')} of optest")
            frames = 0
        if not _EXTENSIONS.match(line):
            kept.append(line)
    return "\n".join(kept)


def _remedy_text(result: CaseResult, layout_remedy: str) -> str:
    """Return the remedy for a failure after its reason; for memory faults ``layout_remedy``, unless it is "".

    Return "" for wrong values, which have no common remedy, and for a pass that is suspect without a retry.
    """
    if result.reason is Reason.VALUE and result.status is Status.FAILED:
        return ""
    if result.status is Status.SUSPECT and result.attempts == 1:
        return ""
    meaning = _meaning_of(result)
    if meaning is None:
        return ""
    if result.reason is None or result.status in STATUS_MEANINGS:
        return f"{result.status.value.upper()}: {meaning.remedy}"
    remedy = _nan_remedy(result) if result.reason is Reason.NAN else ""
    known = {"backend": result.target.partition(":")[0], "operator": result.operator}
    usual = remedy_of(result.reason, {**known, **result.verdict.details})
    if result.reason in (Reason.OUT_OF_BOUNDS, Reason.READ_OUT_OF_BOUNDS, Reason.SIGNAL):
        # The usual hint, to check the last block, is wrong for a case that fails because of its layout.
        remedy = "; ".join(filter(None, (layout_remedy, usual))) if result.reason is Reason.SIGNAL else layout_remedy
    return f"{result.reason.value}: {remedy or usual}"


def _layout_remedy(result: CaseResult) -> str:
    """Return a remedy for memory faults in a case with a strided, 0-d or empty tensor; else ""."""
    specs = layouts_of(result).values()
    is_in_a_gap = result.verdict.details.get("place") == "gap"
    is_strided = any(spec.strides is not None and not spec.is_dense for spec in specs)
    if is_in_a_gap or is_strided or output_layouts(result):
        return "check the strides: this case has a strided tensor, which the kernel may treat as dense"
    if () in result.shapes.values():
        return "check tensors without dimensions: they have one element and no stride"
    if any(0 in shape for shape in result.shapes.values()):
        return "check tensors without elements: return before reading or writing anything"
    return ""


def _nan_remedy(result: CaseResult) -> str:
    """Return the remedy if NaN was expected, or if it was returned for an operand that is NaN; else ""."""
    worst = next((measure for measure in result.verdict.measures if measure.is_off), None)
    if worst is None:
        return ""
    if worst.worst_expected == "nan":
        # Cases derived from a function's signature may be outside of its domain; those with special values are not.
        is_derived = "set:special" not in result.tags and result.operator.startswith("function.")
        return _NAN_OF_REFERENCE if is_derived else _LOST_NAN
    operands = str(result.verdict.details.get("operands_there", "")).replace(",", "").split()
    return _NUMBER_FOR_NAN if worst.worst_actual == "nan" and "nan" in operands else ""


def _meaning_of(result: CaseResult) -> Meaning | None:
    if result.status in STATUS_MEANINGS:
        return STATUS_MEANINGS[result.status]
    return MEANINGS[result.reason] if result.reason is not None else None
