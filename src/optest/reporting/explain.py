"""The words of a failure: what was got, what was wanted, by which rule, where it lies, and how to see it again."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from optest.errors import plural
from optest.reporting.bias import lean_of_measure, sentence
from optest.reporting.block_map import map_lines
from optest.reporting.meanings import MEANINGS, STATUS_MEANINGS, Meaning, remedy_of
from optest.reporting.patterns import layout_text, layouts_of, output_layouts
from optest.reporting.typography import clip, duration, index_text, number, printable, tell_apart
from optest.spec import CaseResult, Check, CheckState, Measure, Reason, RuleUsed, Status, Timings, dtype

_MARKS = re.compile(r"^[ ^~]*[\^~][ ^~]*\n?", re.M)
"""Lines of a traceback that only underline the one above, which takes half of the few lines that are shown."""
_SHOWN_OUTPUTS = 6
_SHOWN_DETAILS = 8
_MESSAGE_LINES = 12
_DESCRIPTION_LINES = 6
_TAIL_LINES = 15
_FIRST_LINES = 8
"""Of as many lines as that of a process's last output: the cause is often said first, and the end of it last."""
_BEFORE_A_DUMP = 4
"""Lines that are shown of what a process said right before Python wrote where it stood."""
_MOST_LAST_LINES = 16
_ALIKE = 3
"""Minimum number of lines of a process that are folded since they repeat the one before, apart from addresses."""
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_DUMP = re.compile(r"^(?:Fatal Python error: |Current thread 0x)")
_OWN_FRAME = re.compile(
    r'^ *File "(?:.*[/\\]optest[/\\]'
    r"(?:api|backends|cli|clib|compare|core|infiniop|memory|numerics|operators|process|torch)[/\\].*\.py"
    r'|<frozen runpy>)", line [0-9]+ in ',
)
"""Of optest, in what Python's faulthandler writes when a process dies."""
_WORKER_FRAME = os.path.join("optest", "core", "worker.py")
_EXTENSIONS = re.compile(r"^(?:Extension modules: .*\(total: [0-9]+\)|<truncated rest of calls>)$")
_TAIL_WIDTH = 240
_FLUSHING = 'Numerics(denormals="flush")'

_LOST_NAN = (
    "a NaN got lost: comparisons with NaN are false, so whatever chooses between elements has to ask for it; "
    "0 / 0, as in the mean of nothing, is one"
)
_OWN_NAN = (
    "the reference has NaN for this call itself; if it is not meant for it, let it raise: such calls are left out"
)
_NAN_WITH_A_RESULT = "the operator has a number for this NaN; docs/operators.md says which"

_HALVES = ("float16", "bfloat16")
_OF_STEPS = ("ulp", "composed")
_FEW_ULP = 8
_ROUNDS_LESS = "integer_operands"

_JUDGED = frozenset({Reason.VALUE, Reason.NAN})
"""Reasons whose facts are all in the measures."""
_TOLD_ELSEWHERE = frozenset(
    {
        *("command", "stderr_tail", "stdout_tail", "traceback_tail", "strays", "waive", "repeated", "torch", "hint"),
        *("exception", "exception_types", "timeout_s", "printed", "how", "diagnosis", "not_run", "suggested_tolerance"),
        "decorator",
    }
)


def explain(result: CaseResult, more: Sequence[str] = (), *, with_map: bool = False, of_all: bool = False) -> list[str]:
    """The failure block of one result, header first, the line that runs it again last, ``more`` before it.

    ``with_map`` is for whoever can show block characters. What fails ``of_all`` cases is not due to the layout of one.
    """
    verdict = result.verdict
    lines = [headline(result), *_what_the_name_hides(result)]
    told = _measured(verdict.measures, result.reason, rounds_less=_ROUNDS_LESS in verdict.details)
    if not told or result.reason not in _JUDGED:
        lines += _message(result)
    elif how := _how(result):
        lines.append(f"  not in every call, but {how}:")
    lines += [*told, *(map_lines(result) if with_map else ())]
    if diagnosis := texts(verdict.details.get("diagnosis")):
        lines.append(f"  diagnosis: {printable('; '.join(diagnosis))}")
    lines += [f"  {printable(said)}" for key in ("repeated", "torch") for said in texts(verdict.details.get(key))]
    described = _description(result)
    lines += [*_layouts(result), *described]
    wrong = [check for check in verdict.checks if check.state in (CheckState.FAILED, CheckState.INCONCLUSIVE)]
    lines += [f"  check {check.name}: {printable(check.detail)}" for check in wrong]
    known = "\n".join([verdict.message, *described])
    lines += _details(verdict.details, known, all_frames=result.reason is Reason.INTERNAL)
    if result.attempts > 1:
        lines.append(f"  run {result.attempts} times")
    if result.duplicate_of:
        lines.append(f"  shares its execution with {printable(result.duplicate_of)}")
    is_refusal = "refused_output" in result.verdict.details
    lines += [*_meaning(result, "" if of_all or is_refusal else _remedy_of_layout(result)), *more]
    if result.repro:
        lines.append(f"  again: {printable(result.repro)}")
    return lines


def headline(result: CaseResult) -> str:
    """``FAILED  matmul[float16](64x128, 128x32)  torch:cpu against numpy``."""
    against = f" against {result.reference}" if result.reference not in ("", "none") else ""
    again = f", round {result.round + 1}" if result.round else ""
    return printable(f"{result.status.value.upper()}  {result.id}  {result.target}{against}{again}")


def brief(result: CaseResult) -> str:
    """What stands behind the name in a line of progress: the reason, or why the case was skipped."""
    reason = result.reason.value if result.reason else ""
    if result.status is Status.PASSED or (result.status in (Status.FAILED, Status.XFAILED) and reason):
        return reason
    first = _first_words(printable(result.verdict.message).split("\n"))
    return clip(": ".join(part for part in (reason, first) if part), 120)


def _first_words(lines: Sequence[str]) -> str:
    """Return the first line, with the next one if it ends with a colon, as ``does not compile:``."""
    first = lines[0].strip() if lines else ""
    return f"{first} {lines[1].strip()}" if first.endswith(":") and len(lines) > 1 else first


def gist(result: CaseResult) -> str:
    """A failure in one line: its reason, and the first thing to say of it."""
    lines = _measured(result.verdict.measures, result.reason)
    how = ""
    if must_be_refused(result) and (described := _description(result)):
        lines = described
    elif not lines or result.reason not in _JUDGED:
        lines = [*_message(result), *lines]
    elif how := _how(result):
        how += ": "
    first = how + _first_words(lines) if lines else ""
    return clip(": ".join(part for part in (result.reason.value if result.reason else "", first) if part), 200)


def measure_lines(measure: Measure, *, rounds_less: bool = False) -> list[str]:
    """One output against what was expected: how much is off, the worst element, the rule, where.

    ``rounds_less`` where it is known that the answer lacks a rounding, and has none too many.
    """
    lines = [f"  {printable(measure.output)}: {_how_much(measure)}"]
    if measure.rule is not None:
        lines.append(f"  rule: {rule_text(measure.rule)}")
    if 0 < measure.nonfinite_mismatched < measure.mismatched:
        lines.append(f"  {measure.nonfinite_mismatched} of them differ in being NaN or infinite")
    if _is_flushed(measure):
        lines.append(f"  the worst is 0 where a subnormal number is right; a device that flushes declares {_FLUSHING}")
    if measure.where:
        lines.append(f"  {printable(measure.where)}")
    if lean := lean_text(measure):
        lines.append(f"  {lean}")
    if not rounds_less and looks_rounded_between(measure):
        lines += [
            f"  errors of a few ulp: are steps, or factors, rounded to {measure.dtype}? "
            "What is expected is computed in float32 and rounded once, at the end",
            f'  if its steps are meant so, it declares numerics=optest.testing.Numerics(accumulator="{measure.dtype}")',
        ]
    return lines


def looks_rounded_between(measure: Measure) -> bool:
    """Return whether errors of a few ulp of 16 bits look like roundings of steps."""
    if measure.dtype not in _HALVES or not measure.mismatched or measure.nonfinite_mismatched:
        return False
    few = measure.max_ulp_error is not None and measure.max_ulp_error <= _FEW_ULP
    return few and measure.rule is not None and measure.rule.name in _OF_STEPS


def _is_flushed(measure: Measure) -> bool:
    expected = measure.worst_expected
    if not measure.mismatched or measure.worst_actual != 0 or not isinstance(expected, float):
        return False
    entry = dtype(measure.dtype)
    return entry.is_float and 0 < abs(expected) < 2.0**entry.emin


def lean_text(measure: Measure) -> str:
    """On which side of the true values the results lie, where chance does not explain it; else empty."""
    lean = lean_of_measure(measure)
    return sentence(lean) if lean is not None else ""


def checks_text(checks: Iterable[Check]) -> list[str]:
    """Every check in one line for each state: done, failed, not possible and why."""
    by_state: dict[CheckState, list[str]] = {}
    for check in checks:
        bare = check.state is CheckState.DONE or not check.detail
        by_state.setdefault(check.state, []).append(check.name if bare else f"{check.name} ({printable(check.detail)})")
    return [f"{state.value}: {', '.join(names)}" for state, names in by_state.items()]


def timings_text(timings: Timings) -> str:
    """``generate 0.1 ms, run 0.8 ms``: the phases that happened."""
    phases = ("generate", "reference", "compile", "run", "compare")
    spent = ((phase, getattr(timings, f"{phase}_s")) for phase in phases)
    return ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in spent if seconds is not None)


def _what_the_name_hides(result: CaseResult) -> list[str]:
    """Return the identifier of a case whose name differs from it, and its source outside of optest."""
    is_ours = result.where.startswith("optest.")
    if not result.identifier or (is_ours and result.id.endswith(result.identifier.removeprefix(result.operator))):
        return []
    where = f", {result.where}" if result.where and not is_ours else ""
    return [printable(f"  case: {result.identifier}{where}")]


def _layouts(result: CaseResult) -> list[str]:
    lines = [f"  {printable(path)}: {layout_text(spec)}" for path, spec in layouts_of(result).items()]
    for name, layout in output_layouts(result).items():
        offset = f", offset {layout['offset']}" if layout.get("offset") else ""
        lines.append(printable(f"  output {name}: strides {list(layout['strides'])}{offset}"))
    return lines


def _description(result: CaseResult) -> list[str]:
    """Return what is wrong with a call that must be refused, else what the plan says of the case: of a captured one
    the file, the line and the code of the call."""
    is_wrong = must_be_refused(result)
    text = result.description or (str(result.verdict.details.get("why") or "") if is_wrong else "")
    first, *rest = [clip(line, _TAIL_WIDTH) for line in _lines(text)] or [""]
    title = "wrong on purpose" if is_wrong else "description"
    return [f"  {title}: {first}", *_beginning(rest, _DESCRIPTION_LINES)] if first else []


def must_be_refused(result: CaseResult) -> bool:
    """Return whether the call of a case is wrong on purpose."""
    return result.reason is Reason.NOT_REFUSED or bool(result.case.get("expects_error"))


def _message(result: CaseResult) -> list[str]:
    meaning = _meaning_of(result)
    text = result.verdict.message or (meaning.sentence if meaning is not None else "")
    if not text:
        return []
    first, *rest = printable(text).strip("\n").split("\n")
    return [f"  {first}", *_beginning(rest, _MESSAGE_LINES)]


def _beginning(lines: Sequence[str], most: int) -> list[str]:
    """The first lines of a text below its head, and how many more it has."""
    left = len(lines) - most
    return [*(f"    {line}" for line in lines[:most]), *([f"    … {plural(left, 'more line')}"] if left > 0 else [])]


def _how(result: CaseResult) -> str:
    """Which of several calls was wrong, where the first was right."""
    return printable(str(result.verdict.details.get("how") or ""))


def _measured(measures: Sequence[Measure], reason: Reason | None, *, rounds_less: bool = False) -> list[str]:
    wrong = [measure for measure in measures if measure.is_off]
    if not wrong and reason in _JUDGED:
        wrong = [measure for measure in measures if measure.worst_index is not None]
    lines = [line for measure in wrong[:_SHOWN_OUTPUTS] for line in measure_lines(measure, rounds_less=rounds_less)]
    if len(wrong) > _SHOWN_OUTPUTS:
        names = clip(", ".join(printable(measure.output) for measure in wrong[_SHOWN_OUTPUTS:]), 200)
        lines.append(f"  and {plural(len(wrong) - _SHOWN_OUTPUTS, 'output')} more: {names}")
    return lines


def _how_much(measure: Measure) -> str:
    if measure.is_off and not measure.mismatched:
        # A tensor-wide statistic failed though each element may be within its own bound.
        return (
            f"the errors are too large for rounding alone: z is {number(measure.statistic, 3)}, "
            f"but should be {number(measure.statistic_limit, 3)} or less"
            f" (over {plural(measure.compared, 'element')}; a bias, truncation or a narrow accumulator does this)"
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
    sizes = [each for each in (_ulps(measure.worst_ulp), _factor(measure.worst_used)) if each]
    aside = f" ({', '.join(sizes)})" if sizes else ""
    return f"{count}; {at}got {got}, but should be {expected}{allowed}{aside}"


def _ulps(ulp: float | None) -> str:
    if ulp is None or not math.isfinite(ulp):
        return ""
    return f"{round(ulp)} ulp" if 10 <= ulp < 1e5 else f"{ulp:.2g} ulp"


def _factor(used: float | None) -> str:
    if used is None or not math.isfinite(used):
        return ""
    if used < 1.1:
        return f"{used:.3g} x allowed"  # a miss by a hair should not read 1.0
    return f"{used:.1f} x allowed" if used < 1000 else f"{used:.1e} x allowed"


def rule_text(rule: RuleUsed) -> str:
    """What the rule allows, and in parentheses its name."""
    name = "" if not rule.name or rule.name == rule.text else f" ({rule.name})"
    return printable(f"{rule.text or rule.name}{name}")


def rules_text(measures: Iterable[Measure]) -> str:
    """Each rule once; which output it judged where they differ; empty if nothing was measured."""
    by_rule: dict[str, list[str]] = {}
    for measure in measures:
        if measure.rule is not None:
            by_rule.setdefault(measure.rule.text or measure.rule.name, []).append(measure.output)
    if len(by_rule) == 1:
        return next(iter(by_rule))
    return "; ".join(f"{', '.join(outputs)}: {rule}" for rule, outputs in by_rule.items())


def texts(detail: Any) -> list[str]:
    """A detail that is a text, several of them, or nothing."""
    return [detail] if isinstance(detail, str) and detail else list(map(str, detail or ()))


def _details(details: Mapping[str, Any], message: str, *, all_frames: bool) -> list[str]:
    """Facts that the message does not say yet, then what the process and the exception said."""
    lines = [f"  {name.replace('_', ' ')}: {value}" for name, value in _facts(details, message)]
    if command := details.get("command"):
        words = command if isinstance(command, (list, tuple)) else None
        lines.append(f"  command: {printable(str(command) if words is None else shlex.join(map(str, words)))}")
    exception = str(details.get("exception") or "")
    if exception and exception not in message and (exception.partition(": ")[2] or exception) not in message:
        lines += _quoted("exception", exception)
    lines += _quoted("traceback", _MARKS.sub("", str(details.get("traceback_tail") or "")))
    stderr = str(details.get("stderr_tail") or "")
    lines += _both_ends("stderr", stderr if all_frames else _without_own_frames(stderr))
    if not stderr.strip():
        lines += _both_ends("stdout", details.get("stdout_tail"))
    if strays := texts(details.get("strays")):
        lines.append(f"  left behind and killed: {clip(printable(', '.join(strays)), _TAIL_WIDTH)}")
    return lines


def _facts(details: Mapping[str, Any], message: str) -> list[tuple[str, str]]:
    facts = []
    for name, value in details.items():
        if name in _TOLD_ELSEWHERE or value in (None, "", [], {}) or (name, value) == ("phase", "run"):
            continue
        text = clip(printable(str(value)).replace("\n", " "), _TAIL_WIDTH)
        if text not in message:
            facts.append((printable(name), text))
    return facts[:_SHOWN_DETAILS]


def _quoted(title: str, text: Any) -> list[str]:
    """The end of a longer text, indented under its title."""
    all_lines = _lines(text)
    if not all_lines:
        return []
    left = max(0, len(all_lines) - _TAIL_LINES)
    return [f"  {title}:", *([f"    … {plural(left, 'line')} before"] if left else []), *_indented(all_lines[left:])]


def _both_ends(title: str, text: Any) -> list[str]:
    """What a process said at last; of many lines the first and the last, those before it died among them."""
    all_lines: list[str] = []
    for _, repeated in groupby(_lines(text), key=lambda line: _ADDRESS.sub("", line)):
        line, *alike = repeated
        all_lines += [line, f"… {len(alike)} more lines like it"] if len(alike) >= _ALIKE else [line, *alike]
    if not all_lines:
        return []
    dumped = next((len(all_lines) - index for index, line in enumerate(all_lines) if _DUMP.match(line)), 0)
    ending = max(_TAIL_LINES - _FIRST_LINES, min(dumped + _BEFORE_A_DUMP, _MOST_LAST_LINES) if dumped else 0)
    left = len(all_lines) - _FIRST_LINES - ending
    if left <= 0:
        return [f"  {title} ends:", *_indented(all_lines)]
    first, last = all_lines[:_FIRST_LINES], all_lines[_FIRST_LINES + left :]
    between = f"    … {plural(left, 'line')} between"
    return [f"  {title}, first and last lines:", *_indented(first), between, *_indented(last)]


def _lines(text: Any) -> list[str]:
    """Without empty ones at both ends."""
    lines = [line.rstrip() for line in printable(str(text or "")).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {clip(line, _TAIL_WIDTH)}".rstrip() for line in lines]


def _without_own_frames(text: str) -> str:
    """Return the traceback of a dying process with optest's frames replaced by their number.

    Frames below the worker's first one are of the process that it was forked from.
    """
    kept: list[str] = []
    frames = 0
    is_below = False
    for line in [*text.split("\n"), ""]:
        if _OWN_FRAME.match(line) or (is_below and line.startswith("  File ")):
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


def _meaning(result: CaseResult, of_layout: str) -> list[str]:
    """Return what to try, after the hint ``of_layout`` for memory faults; [] for wrong values and doubtful passes."""
    if result.reason is Reason.VALUE and result.status is Status.FAILED:
        return []
    if result.status is Status.SUSPECT and result.attempts == 1:
        return []
    meaning = _meaning_of(result)
    if meaning is None:
        return []
    if result.reason is None or result.status in STATUS_MEANINGS:
        return [f"  {result.status.value.upper()}: {meaning.remedy}"]
    remedy = _remedy_of_nan(result) if result.reason is Reason.NAN else ""
    known = {"backend": result.target.partition(":")[0], "operator": result.operator}
    usual = remedy_of(result.reason, {**known, **result.verdict.details})
    if result.reason in (Reason.OUT_OF_BOUNDS, Reason.READ_OUT_OF_BOUNDS, Reason.SIGNAL):
        # The last block, of which the usual hint speaks, does not matter in a case that fails for its layout.
        remedy = "; ".join(filter(None, (of_layout, usual))) if result.reason is Reason.SIGNAL else of_layout
    return [f"  {result.reason.value}: {remedy or usual}"]


def _remedy_of_layout(result: CaseResult) -> str:
    """Return a hint for memory faults in a case with another layout than a dense one; else ""."""
    specs = layouts_of(result).values()
    is_in_a_gap = result.verdict.details.get("place") == "gap"
    is_strided = any(spec.strides is not None and not spec.is_dense for spec in specs)
    if is_in_a_gap or is_strided or output_layouts(result):
        return "check the strides: this case has a strided tensor, which may be taken for a dense one"
    if () in result.shapes.values():
        return "check tensors without dimensions: they have one element and no stride"
    if any(0 in shape for shape in result.shapes.values()):
        return "check tensors without elements: return before anything is read or written"
    return ""


def _remedy_of_nan(result: CaseResult) -> str:
    """What to try where a NaN got lost, or where an operand was one; else empty."""
    worst = next((measure for measure in result.verdict.measures if measure.is_off), None)
    if worst is None:
        return ""
    if worst.worst_expected == "nan":
        is_of_calls = "set:special" not in result.tags and result.operator.startswith("function.")
        return _OWN_NAN if is_of_calls else _LOST_NAN
    operands = str(result.verdict.details.get("operands_there", "")).replace(",", "").split()
    return _NAN_WITH_A_RESULT if worst.worst_actual == "nan" and "nan" in operands else ""


def _meaning_of(result: CaseResult) -> Meaning | None:
    if result.status in STATUS_MEANINGS:
        return STATUS_MEANINGS[result.status]
    return MEANINGS[result.reason] if result.reason is not None else None
