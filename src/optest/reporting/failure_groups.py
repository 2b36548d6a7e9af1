"""Groups of failures with one cause, each with one failure block."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optest.reporting.explain import (
    Explanation,
    detail_texts,
    explain,
    explanation_of,
    looks_rounded_between,
    must_be_refused,
)
from optest.reporting.patterns import layouts_of, output_layouts, pattern_of, telling_parameters
from optest.reporting.typography import printable, without_ansi
from optest.spec import BAD_STATUSES, CaseResult, Reason, Status, dtype

# Up to this rank a reader finds elements of a tensor by eye; each further dimension is as hard as four times as many
# elements.
_SIMPLE_RANK = 3
# Number of further cases of a group that are named.
_NAMED = 3
# Number of operators from which the same symptom has one cause, outside of their kernels.
_MANY_OPERATORS = 3
_VALUE_REASONS = (Reason.VALUE, Reason.NAN)
# Fewer elements allow no certain diagnosis.
_MIN_DIAGNOSED = 4
_FRAME = re.compile(r'^ *File "(.*)", line (\d+)', re.M)
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<")
# Both texts mean a shape of another rank.
_UNPACKING = re.compile(r"\b(?:not enough|too many) (?=values to unpack)")
# Folder of a path, such as a temporary one, which may differ between cases.
_FOLDER = re.compile(r"[^\s:]*/")
_WORD = re.compile(r"[^\W\d_]+")
# Messages of these reasons differ in buffers, elements and bytes, though the cause is the same.
_MEMORY_REASONS = frozenset(
    {Reason.OUT_OF_BOUNDS, Reason.READ_OUT_OF_BOUNDS, Reason.INPUT_MUTATED, Reason.UNWRITTEN, Reason.WORKSPACE}
)
_RANK_SUFFIX = re.compile(r"\dd$")
_TENSOR_NAME = re.compile(r"\b(input|output) \w+")
# Ranks of reasons shown after wrong values, memory and state: kernels often raise for calls not meant for them.
_LATE = {Reason.RAISED: 1, Reason.NOT_REFUSED: 2, Reason.WRONG_ERROR: 2}
# Share of the cases of an operator's largest group up to which another group is rare.
_RARE = 0.25
# Text in parentheses, lists, quoted texts, numbers and shapes, dtypes and constants.
_VALUE = re.compile(
    r" ?\([^()]*\)|\[[^\[\]]*\]|'[^']*'"
    r"|(?<![\w.])(?:[-+]?(?:\d[\w.+-]*|inf|nan)|u?int\d+|b?float\d\w*|complex\d+|bool|True|False|None)(?![\w.]*\w)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures that probably have one cause: ``first``, the simplest call, represents ``others``.

    ``pattern`` describes which cases of the operator fail; "" if no property distinguishes them. If the operator
    ``always_fails``, no case of it passed.
    """

    first: CaseResult
    others: tuple[CaseResult, ...] = ()
    pattern: str = ""
    always_fails: bool = False

    @property
    def explanation(self) -> Explanation:
        """Facts about the first failure."""
        return explanation_of(self.first, self.pattern, always_fails=self.always_fails)


def failure_groups(results: Iterable[CaseResult]) -> list[FailureGroup]:
    """Return the failures of a run in groups that probably have one cause, the most informative group first.

    ``results`` are all results of the run, since passed cases show which property the failing ones have in common.
    Failures of one operator (conv1d and conv2d count as one) are in one group if they share

    - for wrong values: a sentence of their diagnoses or, without a diagnosis, the parameter that explains most of them;
    - for memory faults: whether all tensors are dense;
    - for exceptions: the raising line, the type and the words of the text, without values;
    - for calls that must be refused: the error in the call;
    - otherwise: the message, with the last line of output of a program.

    Three operators or more with the same text are one group, unless their code is in different files. :func:`_urgency`
    has the order of the groups of an operator; the first groups of all operators come before all second ones.
    """
    listed = list(results)
    bad = [result for result in listed if result.status in BAD_STATUSES]
    # A symptom counts once for each operator.
    occurrences = Counter(
        symptom for _, symptom in {(result.operator, symptom) for result in bad for symptom in _symptoms(result)}
    )
    common = {symptom for symptom, count in occurrences.items() if count >= _MANY_OPERATORS}
    parameters: dict[int, str] = {}
    right = by_operator(result for result in listed if result.status is Status.PASSED)
    for operator, members in by_operator(bad).items():
        parameters |= telling_parameters(members, right.get(operator, ()))
    groups: dict[Hashable, list[CaseResult]] = {}
    by_mark: dict[Hashable, Hashable] = {}
    for result in bad:
        # A result joins the first group that has one of its marks, and adds its other marks to that group.
        marks = _marks(result, common, parameters[id(result)])
        key = next((by_mark[mark] for mark in marks if mark in by_mark), marks[0])
        by_mark.update((mark, key) for mark in marks if mark not in by_mark)
        groups.setdefault(key, []).append(result)
    return _in_order_of_urgency(_with_patterns(_with_small_ones(list(groups.values())), listed))


def _with_patterns(groups: Sequence[Sequence[CaseResult]], results: Sequence[CaseResult]) -> list[FailureGroup]:
    """Return the groups with the simplest call first, and with the pattern of those that are of one operator."""
    passed: dict[str, list[CaseResult]] = {}
    failed: dict[str, list[CaseResult]] = {}
    for result in results:
        # A call that must be refused does not show for which sizes valid calls fail.
        if not must_be_refused(result) and (result.status is Status.PASSED or result.status in BAD_STATUSES):
            of_status = passed if result.status is Status.PASSED else failed
            of_status.setdefault(_family(result), []).append(result)
    described = []
    for members in groups:
        first, pattern, always_fails = min(members, key=_complexity), "", False
        family = _family(first)
        if all(_family(member) == family and not must_be_refused(member) for member in members):
            right = passed.get(family, ())
            pattern = _pattern_of_group(members, failed[family], right, _diagnoses_of(first))
            always_fails = bool(pattern) and not any(all(map(math.prod, result.shapes.values())) for result in right)
        others = tuple(member for member in members if member is not first)
        described.append(FailureGroup(first=first, others=others, pattern=pattern, always_fails=always_fails))
    return described


def _in_order_of_urgency(groups: Sequence[FailureGroup]) -> list[FailureGroup]:
    """Sort groups: those of no operator first, then the first group of each operator, then the second ones, and so on.

    Within these, exceptions and wrong calls come last, and groups of more operators and cases first.
    """
    largest: Counter[str] = Counter()
    for group in groups:
        has_cause = group.first.reason not in _LATE and _vagueness(group.first) != 1
        largest |= Counter({_family(group.first): 1 + len(group.others) if has_cause else 0})
    seen: Counter[str] = Counter()
    ranks: dict[int, tuple[int, ...]] = {}
    for group in sorted(groups, key=lambda group: _urgency(group, largest[_family(group.first)])):
        # Checks of a whole session, such as a device that stays selected, are of no operator.
        if "set:session" in group.first.tags:
            ranks[id(group)] = (-1,)
            continue
        operators = {result.operator for result in (group.first, *group.others)}
        lateness = _urgency(group, 0)[0]
        ranks[id(group)] = (seen[_family(group.first)], lateness, -len(operators), -len(group.others))
        seen[_family(group.first)] += 1
    return sorted(groups, key=lambda group: ranks[id(group)])


def _urgency(group: FailureGroup, largest: int) -> tuple[int, bool, bool, int, bool, int]:
    """Return the sort key of a group among those of its operator, of which the largest has ``largest`` cases.

    Wrong values, memory and state come first, then exceptions, then wrong calls. Rare groups come after common ones,
    wrong shapes and dtypes after values; then those with a diagnosis, plain calls and many cases come first.
    """
    first, count = group.first, 1 + len(group.others)
    is_plain = not layouts_of(first) and "=" not in (first.identifier or first.id)
    lateness = 2 if must_be_refused(first) else _LATE.get(first.reason, int(_is_narrowed(first)))  # type: ignore[arg-type]
    is_misshapen = first.reason in (Reason.SHAPE, Reason.DTYPE)
    return lateness, count <= _RARE * largest, is_misshapen, _vagueness(first), not is_plain, -count


def _family(result: CaseResult) -> str:
    """Return the operator of a result: one name for conv1d, conv2d and conv3d; for a scene with its file."""
    # Classes of several scene files often have the same name.
    file = f" of {result.where}" if result.operator.startswith("scene.") else ""
    return _RANK_SUFFIX.sub("", result.operator) + file


def by_operator(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """Return the results by operator, in their order."""
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.operator, []).append(result)
    return groups


def _pattern_of_group(
    members: Sequence[CaseResult],
    failed: Sequence[CaseResult],
    passed: Sequence[CaseResult],
    diagnosis: Sequence[str],
) -> str:
    """Return the pattern of all failures of an operator; without one, that of a group with at least half of them."""
    pattern = pattern_of(failed, passed, diagnosis)
    rest = len(failed) - len(members)
    if pattern or not rest:
        return pattern
    member_ids = set(map(id, members))
    others = [result for result in failed if id(result) not in member_ids]
    of_group = pattern_of(members, passed, diagnosis, others) if len(members) >= rest else ""
    return of_group and f"in this way {of_group}; {rest} more cases of it fail in other ways"


def _with_small_ones(groups: list[list[CaseResult]]) -> list[list[CaseResult]]:
    """Merge wrong values in too few elements for a diagnosis into the largest diagnosed group of their operator."""
    diagnosed = [group for group in groups if _diagnoses_of(group[0])]
    kept = []
    for group in groups:
        hosts = [host for host in diagnosed if _origin(host[0]) == _origin(group[0]) and not _is_narrowed(host[0])]
        if _diagnoses_of(group[0]) or not hosts or group[0].reason not in _VALUE_REASONS:
            kept.append(group)
            continue
        max(hosts, key=len).extend(result for result in group if _has_few_wrong(result))
        if rest := [result for result in group if not _has_few_wrong(result)]:
            kept.append(rest)
    return kept


def _has_few_wrong(result: CaseResult) -> bool:
    """Return whether each wrong output has fewer than 4 elements, or fewer than 3 wrong ones."""
    measures = result.verdict.measures
    return bool(measures) and all(
        measure.compared < _MIN_DIAGNOSED or 0 < measure.mismatched < _MIN_DIAGNOSED - 1
        for measure in measures
        if measure.is_off
    )


def _origin(result: CaseResult) -> tuple[str, bool]:
    """Return the operator of a result, and whether its wrong outputs have to be exact."""
    # Exact outputs, such as indices, are computed by other code of an operator than rounded ones.
    rules = {measure.rule.name for measure in result.verdict.measures if measure.is_off and measure.rule}
    return _family(result), rules == {"exact"}


def _diagnoses_of(result: CaseResult) -> Sequence[str]:
    return detail_texts(result.verdict.details.get("diagnosis"))


def _is_narrowed(result: CaseResult) -> bool:
    """Return whether the diagnosis of a float64 case is that its results are numbers of a narrower dtype."""
    # Many functions compute in float32 on purpose: that is shown after other failures.
    return "float64" in result.dtypes and any("every result is a number of" in text for text in _diagnoses_of(result))


def _vagueness(result: CaseResult) -> int:
    """Return 0 if the diagnosis names a cause, 1 if only an effect (one number everywhere), 2 if there is none."""
    diagnosis = _diagnoses_of(result)
    if not diagnosis:
        return 0 if result.verdict.details.get("repeated") else 2
    return int(all(text.startswith("every element of") for text in diagnosis))


def _marks(result: CaseResult, common: Container[Hashable], parameter: str) -> list[Hashable]:
    """Return the marks of a failure: failures that share one of them are in one group.

    ``common`` are symptoms of several operators; ``parameter`` is the dtype or attribute that explains wrong values
    without a diagnosis, or with one that names it.
    """
    if raised := _raised_there(result):
        return [raised]
    diagnosis = _diagnoses_of(result)
    marks: list[Hashable] = [symptom for symptom in _symptoms(result) if symptom in common]
    marks += [(_family(result), result.status, skeleton(sentence)) for sentence in diagnosis]
    if result.reason in _VALUE_REASONS and (not diagnosis or any(parameter in text.split() for text in diagnosis)):
        marks.append((*_origin(result), result.status, result.reason, parameter))
    elif not marks and result.reason in _MEMORY_REASONS and not must_be_refused(result):
        # Whether an input or output is not dense, or an input is broadcast.
        has_layout = bool(layouts_of(result) or output_layouts(result)) or len(set(result.shapes.values())) > 1
        marks.append((_family(result), result.reason, _tested_source(result), has_layout))
    elif not marks:
        code = result.verdict.details.get("exit_code")
        marks.append(
            (_family(result), result.status, result.reason, code, _tested_source(result), _skeleton_of(result))
        )
    return marks


def _symptoms(result: CaseResult) -> list[Hashable]:
    """Return the texts of a failure with its status and source; [] for wrong values without a diagnosis.

    The values in these texts count: only equal texts are one symptom.
    """
    if must_be_refused(result):
        return [(result.status, _skeleton_of(result), _tested_source(result))]
    symptoms = _diagnoses_of(result) or ([] if result.reason in _VALUE_REASONS else [_failure_text(result)])
    return [(result.status, text, _tested_source(result)) for text in symptoms if text]


def _skeleton_of(result: CaseResult) -> tuple[str, ...]:
    """Return the words of a failure without values; for a wrong call also without names of tensors."""
    text = _failure_text(result)
    return skeleton(_TENSOR_NAME.sub(r"\1", text) if must_be_refused(result) else text)


def _failure_text(result: CaseResult) -> str:
    """Return the message of a failure; for a program with its last line of output.

    For a call that must be refused, return the error in the call.
    """
    details, message = result.verdict.details, result.verdict.message
    if must_be_refused(result):
        return result.description or str(details.get("why") or message)
    if "exit_code" not in details:
        return message
    last = str(details.get("stderr_tail") or details.get("stdout_tail") or "").strip().rpartition("\n")[2]
    return f"{message}: {_FOLDER.sub('', last)}"


def _tested_source(result: CaseResult) -> str:
    """Return the module, program or library that the configuration of a case names, "" if it names none."""
    config = (result.case.get("backend_config") or {}).get(result.backend) or {}
    named = next((config[key] for key in (result.operator, "command", "library") if config.get(key)), "")
    return str(named).partition(":")[0]


def _raised_there(result: CaseResult) -> tuple[Any, ...]:
    """Return status, reason, file, line, type and words of an exception; () without an exception or a traceback.

    The location is the innermost frame outside of libraries.
    """
    frames = _FRAME.findall(str(result.verdict.details.get("traceback_tail") or ""))
    if result.reason is not Reason.RAISED or not frames:
        return ()
    frame = next((frame for frame in reversed(frames) if not _LIBRARY.search(frame[0])), frames[-1])
    exception_type, _, text = str(result.verdict.details.get("exception") or result.verdict.message).partition(":")
    return (
        result.status,
        result.reason,
        frame,
        exception_type,
        *_WORD.findall(" ".join(skeleton(_UNPACKING.sub("", text)))),
    )


def _complexity(result: CaseResult) -> tuple[Any, ...]:
    """Return a sort key for the representative of a group: diagnosed cases first, then simple calls, then large errors.

    Simple calls have dense inputs, attributes at their defaults and few elements.
    """
    measures, attributes = result.verdict.measures, (result.identifier or result.id).count("=")
    elements = sum(math.prod(shape) for shape in result.shapes.values())
    # The rounding of 16 bits may explain only the narrow cases of a group: wider ones are shown first.
    is_narrow = any(dtype(measure.dtype).bits < 32 for measure in measures)
    worst = max(filter(math.isfinite, (measure.worst_used or 0.0 for measure in measures)), default=0.0)
    has_remark = any(map(looks_rounded_between, measures))
    shapes, layouts = result.shapes.values(), len(layouts_of(result))
    # Cases without or with one element in each tensor explain little about the others.
    is_degenerate = () in shapes or not all(map(math.prod, shapes)) or elements <= len(shapes)
    size = elements * 4 ** max(0, max(map(len, shapes), default=0) - _SIMPLE_RANK)
    # A wrong node of a model explains more than its wrong outputs.
    is_model = result.attributes.get("part") == "outputs"
    return is_model, is_degenerate, _vagueness(result), is_narrow, not has_remark, layouts, attributes, size, -worst


def group_lines(group: FailureGroup, *, with_map: bool = False) -> list[str]:
    """Return the failure block of a group: that of its first result, with the pattern and the names of some others."""
    others = [f"  {others_text(group)}"] if group.others else []
    return [*explain(group.first, group.explanation, with_map=with_map), *others]


def others_text(group: FailureGroup) -> str:
    """Return ``and 4 more like it: …`` with the ids of at most three other results, first one of each operator.

    Only for a group that has others.
    """
    of_each = {result.operator: result for result in reversed(group.others)}
    ordered = {id(result): result for result in (*reversed(of_each.values()), *group.others)}
    named = ", ".join(result.id for result in list(ordered.values())[:_NAMED])
    more = ", …" if len(group.others) > _NAMED else ""
    operators = {result.operator for result in (group.first, *group.others)}
    of = f", of {len(operators)} operators" if len(operators) > 1 else ""
    return printable(f"and {len(group.others)} more like it{of}: {named}{more}")


def without_colours(result: CaseResult) -> CaseResult:
    """Return a copy of the result without escape sequences of terminals in its id, message and details."""
    verdict = result.verdict
    plain = replace(verdict, message=without_ansi(verdict.message), details=_uncoloured(verdict.details))
    return replace(result, id=without_ansi(result.id), verdict=plain)


def failure_block(result: CaseResult) -> str:
    """Return the failure block of a result as one text without colours."""
    return "\n".join(explain(without_colours(result)))


def group_block(group: FailureGroup) -> str:
    """Return the failure block of a group as one text without colours."""
    return "\n".join(group_lines(replace(group, first=without_colours(group.first))))


def _uncoloured(value: Any) -> Any:
    if isinstance(value, str):
        return without_ansi(value)
    if isinstance(value, Mapping):
        return {name: _uncoloured(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_uncoloured(item) for item in value]
    return value


def skeleton(text: str) -> tuple[str, ...]:
    """Return the parts of a text between values: numbers, shapes, dtypes, lists, quoted and parenthesised texts."""
    return tuple(_VALUE.split(text))
