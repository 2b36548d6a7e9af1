"""Failures that are alike together, with one block for each group; and texts that differ in values alone, told once."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optest.reporting.explain import explain, lean_text, looks_rounded_between, must_be_refused, texts
from optest.reporting.patterns import layouts_of, output_layouts, pattern_of, telling_parameters
from optest.reporting.typography import printable, without_ansi
from optest.spec import BAD_STATUSES, CaseResult, Reason, Status, dtype, dtype_names

_PLAIN_RANK = 3
"""Most dimensions of a tensor whose elements a reader finds by eye; each further one makes it as hard as four times the
elements do."""
_NAMED = 3
"""As many further cases of a group are named."""
_ACROSS = 3
"""What is said in the same words of so many operators has one cause, outside of their kernels."""
_OF_VALUES = (Reason.VALUE, Reason.NAN)
_TOO_FEW = 4
"""Elements of which nothing can be said with certainty."""
_ASIDE = re.compile(r" \(.*\)")
_FRAME = re.compile(r'^ *File "(.*)", line (\d+)', re.M)
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<")
_UNPACKING = re.compile(r"\b(?:not enough|too many) (?=values to unpack)")
"""Texts that both mean a shape of another number of dimensions."""
_FOLDER = re.compile(r"[^\s:]*/")
"""Folder of a path, which may differ between cases."""
_WORD = re.compile(r"[^\W\d_]+")
_OF_MEMORY = frozenset(
    {Reason.OUT_OF_BOUNDS, Reason.READ_OUT_OF_BOUNDS, Reason.INPUT_MUTATED, Reason.UNWRITTEN, Reason.WORKSPACE}
)
"""Reasons whose messages differ in buffers, elements and bytes though the cause is one."""
_RANK_SUFFIX = re.compile(r"\dd$")
_TENSOR_NAME = re.compile(r"\b(input|output) \w+")
_LATE = {Reason.RAISED: 1, Reason.NOT_REFUSED: 2, Reason.WRONG_ERROR: 2}
"""Ranks of reasons shown after wrong values, memory and state: kernels often raise for calls not meant for them."""
_FEW = 0.25
"""Share of the cases of the largest group, up to which a group counts as a rare case."""
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)"
_DTYPE = "|".join(sorted(map(re.escape, dtype_names()), key=len, reverse=True))
_VALUE = re.compile(
    r"\[[^\[\]]*\]"  # a list
    r"|'[^']*'"  # a text
    r"|(?<![\w.])(?:"
    rf"(?:{_DTYPE})(?:, (?:{_DTYPE}))*(?:\[[\dx]*\])?"  # dtypes, or a tensor
    r"|(?:[0-9a-f]{2} )+became(?: [0-9a-f]{2})+|\d+(?:x\d+)+"  # a byte of memory, a shape
    rf"|0x[0-9a-f]+|{_NUMBER}|True|False|None"
    r")(?![\w.]*\w)",
)
_WIDTH = 40
"""Characters that the values of one place take, where there are more than two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures with one cause, as far as it shows. ``first``, the simplest call, stands for ``others``; ``pattern``
    says which cases of the operator they are."""

    first: CaseResult
    others: tuple[CaseResult, ...] = ()
    pattern: str = ""


def failure_groups(results: Iterable[CaseResult]) -> list[FailureGroup]:
    """Group failures by what is known of their cause; ``results`` are all of the run, the passed ones too.

    Wrong values are alike where an operator has them and a sentence of their diagnoses is the same, or where neither
    has one; faults of memory where tensors are dense, or where one is not. Exceptions are alike where one line raised
    one type with words that differ in values only; wrong calls in what is wrong with them; other failures in their
    messages, with the last line that a program wrote. Operators that differ in their number of dimensions (conv1d,
    conv2d) are one, and so are several operators with the very same text, unless their code is in different files.

    What is of no operator comes first. Wrong values, memory and state come before exceptions, and these before wrong
    calls; of these few cases come after many, then what has a diagnosis and plain calls come before others. The first
    group of each operator comes before the second of any; among these, those of more operators and cases come first.
    """
    listed = list(results)
    bad = [result for result in listed if result.status in BAD_STATUSES]
    said = Counter(symptom for _, symptom in {(each.operator, text) for each in bad for text in _symptoms(each)})
    across = {symptom for symptom, count in said.items() if count >= _ACROSS}
    parameters: dict[int, str] = {}
    right = by_operator(each for each in listed if each.status is Status.PASSED)
    for operator, members in by_operator(bad).items():
        parameters |= telling_parameters(members, right.get(operator, ()))
    passed: dict[str, list[CaseResult]] = {}
    failed: dict[str, list[CaseResult]] = {}
    for result in listed:  # a wrong call tells nothing of the sizes for which right ones fail
        if not must_be_refused(result) and (result.status is Status.PASSED or result.status in BAD_STATUSES):
            of_status = passed if result.status is Status.PASSED else failed
            of_status.setdefault(_family(result), []).append(result)
    groups: dict[Hashable, list[CaseResult]] = {}
    by_mark: dict[Hashable, Hashable] = {}
    for result in bad:
        marks = _marks(result, across, parameters[id(result)])
        key = next((by_mark[mark] for mark in marks if mark in by_mark), marks[0])
        by_mark.update((mark, key) for mark in marks if mark not in by_mark)
        groups.setdefault(key, []).append(result)
    found = list[FailureGroup]()
    for members in _with_small_ones(list(groups.values())):
        first, pattern = min(members, key=_complexity), ""
        family = _family(first)
        if all(_family(each) == family and not must_be_refused(each) for each in members):
            pattern = _pattern(members, failed[family], passed.get(family, ()), _diagnosis(first))
        others = tuple(each for each in members if each is not first)
        found.append(FailureGroup(first=first, others=others, pattern=pattern))
    seen: Counter[str] = Counter()
    ranks: dict[int, tuple[int, ...]] = {}
    most: Counter[str] = Counter()
    for group in found:
        has_cause = group.first.reason not in _LATE and _silence(group.first) != 1
        most |= Counter({_family(group.first): 1 + len(group.others) if has_cause else 0})
    for group in sorted(found, key=lambda each: _urgency(each, most[_family(each.first)])):
        if "set:session" in group.first.tags:
            ranks[id(group)] = (-1,)
            continue
        operators = {each.operator for each in (group.first, *group.others)}
        late = _urgency(group, 0)[0]
        ranks[id(group)] = (seen[_family(group.first)], late, -len(operators), -len(group.others))
        seen[_family(group.first)] += 1
    return sorted(found, key=lambda group: ranks[id(group)])


def _urgency(group: FailureGroup, most: int) -> tuple[int, bool, bool, int, bool, int]:
    """Return the sort key of a group: by the kind of reason, few cases against the ``most`` of a group of the operator
    last; then wrong shapes and dtypes after wrong values, those with a diagnosis first, plain calls, then those with
    most cases."""
    first, count = group.first, 1 + len(group.others)
    is_plain = not layouts_of(first) and "=" not in (first.identifier or first.id)
    late = 2 if must_be_refused(first) else _LATE.get(first.reason, int(_is_narrowed(first)))  # type: ignore[arg-type]
    is_misshapen = first.reason in (Reason.SHAPE, Reason.DTYPE)
    return late, count <= _FEW * most, is_misshapen, _silence(first), not is_plain, -count


def _family(result: CaseResult) -> str:
    """Return the operator of a result: one name for conv1d, conv2d and conv3d, of a scene with its file.

    Classes of several scene files often have one name.
    """
    file = f" of {result.where}" if result.operator.startswith("scene.") else ""
    return _RANK_SUFFIX.sub("", result.operator) + file


def by_operator(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    found: dict[str, list[CaseResult]] = {}
    for result in results:
        found.setdefault(result.operator, []).append(result)
    return found


def _pattern(
    members: Sequence[CaseResult],
    failed: Sequence[CaseResult],
    passed: Sequence[CaseResult],
    diagnosis: Sequence[str],
) -> str:
    """Which cases of one operator fail: all that do, whatever is said of them, else the members of one group."""
    whole = pattern_of(failed, passed, diagnosis)
    rest = len(failed) - len(members)
    if whole or not rest:
        return whole
    others = [each for each in failed if all(each is not one for one in members)]
    of_group = pattern_of(members, passed, diagnosis, others) if len(members) >= rest else ""
    return of_group and f"in this way {of_group}; {rest} more cases of it fail in other ways"


def _with_small_ones(groups: list[list[CaseResult]]) -> list[list[CaseResult]]:
    """Merge groups of wrong values in too few elements for a diagnosis with those of their operator that have one."""
    diagnosed = [group for group in groups if _diagnosis(group[0])]
    kept = []
    for group in groups:
        hosts = [each for each in diagnosed if _origin(each[0]) == _origin(group[0]) and not _is_narrowed(each[0])]
        if _diagnosis(group[0]) or not hosts or group[0].reason not in _OF_VALUES:
            kept.append(group)
            continue
        max(hosts, key=len).extend(each for each in group if _is_small(each))
        if rest := [each for each in group if not _is_small(each)]:
            kept.append(rest)
    return kept


def _is_small(result: CaseResult) -> bool:
    measures = result.verdict.measures
    return bool(measures) and all(
        each.compared < _TOO_FEW or 0 < each.mismatched < _TOO_FEW - 1 for each in measures if each.is_off
    )


def _origin(result: CaseResult) -> tuple[str, bool]:
    """Numbers that have to be equal, as integers, come from other code of an operator than those with roundings."""
    rules = {measure.rule.name for measure in result.verdict.measures if measure.is_off and measure.rule}
    return _family(result), rules == {"exact"}


def _diagnosis(result: CaseResult) -> Sequence[str]:
    return texts(result.verdict.details.get("diagnosis"))


def _is_narrowed(result: CaseResult) -> bool:
    """Return whether all that is known is a dtype narrower than float64, which many functions choose to compute in."""
    return "float64" in result.dtypes and any("every result is a number of" in each for each in _diagnosis(result))


def _silence(result: CaseResult) -> int:
    """Return 0 if a cause is named, 1 if only an effect of it, one number everywhere, and 2 if nothing is."""
    diagnosis = _diagnosis(result)
    if not diagnosis:
        return 0 if result.verdict.details.get("repeated") else 2
    return int(all(each.startswith("every element of") for each in diagnosis))


def _marks(result: CaseResult, across: Container[Hashable], parameter: str) -> list[Hashable]:
    """What failures have in common that are alike; one is enough. Wrong values without a diagnosis have the parameter
    that tells of them in common, also with a diagnosis that names it."""
    if raised := _raised_there(result):
        return [raised]
    diagnosis = _diagnosis(result)
    marks: list[Hashable] = [symptom for symptom in _symptoms(result) if symptom in across]
    marks += [(_family(result), result.status, skeleton(_ASIDE.sub("", sentence))) for sentence in diagnosis]
    if result.reason in _OF_VALUES and (not diagnosis or any(parameter in each.split() for each in diagnosis)):
        marks.append((*_origin(result), result.status, result.reason, parameter))
    elif not marks and result.reason in _OF_MEMORY and not must_be_refused(result):
        marks.append((_family(result), result.reason, _source(result), _has_layout(result)))
    elif not marks:
        code = result.verdict.details.get("exit_code")
        marks.append((_family(result), result.status, result.reason, code, _source(result), _skeleton_of(result)))
    return marks


def _symptoms(result: CaseResult) -> list[Hashable]:
    """What is said of a failure beyond its reason, value for value; nothing for wrong values that nothing explains."""
    if must_be_refused(result):
        return [(result.status, _skeleton_of(result), _source(result))]
    said = _diagnosis(result) or ([] if result.reason in _OF_VALUES else [_text(result)])
    return [(result.status, text, _source(result)) for text in said if text]


def _has_layout(result: CaseResult) -> bool:
    """Return whether an input or an output of the case is not dense, or an input is broadcast."""
    return bool(layouts_of(result) or output_layouts(result)) or len(set(result.shapes.values())) > 1


def _skeleton_of(result: CaseResult) -> tuple[str, ...]:
    """Return the words of a failure without values; of a wrong call without names of tensors and asides, too."""
    text = _text(result)
    return skeleton(_TENSOR_NAME.sub(r"\1", _ASIDE.sub("", text)) if must_be_refused(result) else text)


def _text(result: CaseResult) -> str:
    """Return the message, of a program that failed with its last line of output; for a wrong call return what is
    wrong with it."""
    details, message = result.verdict.details, result.verdict.message
    if must_be_refused(result):
        return result.description or str(details.get("why") or message)
    if "exit_code" not in details:
        return message
    last = str(details.get("stderr_tail") or details.get("stdout_tail") or "").strip().rpartition("\n")[2]
    return f"{message}: {_FOLDER.sub('', last)}"


def _source(result: CaseResult) -> str:
    """Return the module, program or library under test that a case names, "" if it names none."""
    config = (result.case.get("backend_config") or {}).get(result.backend) or {}
    named = next((config[key] for key in (result.operator, "command", "library") if config.get(key)), "")
    return str(named).partition(":")[0]


def _raised_there(result: CaseResult) -> tuple[Any, ...]:
    """Return the location, type and words of an exception; () for a failure without an exception or a location.

    If a library raised it, the location is that of its caller."""
    frames = _FRAME.findall(str(result.verdict.details.get("traceback_tail") or ""))
    if result.reason is not Reason.RAISED or not frames:
        return ()
    frame = next((each for each in reversed(frames) if not _LIBRARY.search(each[0])), frames[-1])
    raised, _, text = str(result.verdict.details.get("exception") or result.verdict.message).partition(":")
    words = " ".join(skeleton(_ASIDE.sub("", _UNPACKING.sub("", text))))
    return (result.status, result.reason, frame, raised, *_WORD.findall(words))


def _complexity(result: CaseResult) -> tuple[Any, ...]:
    """The simplest call first: dense, with attributes at their defaults, of few elements; the worst of equal ones.

    Before all others stand those of which something can be said; what 16 bits may explain has to fit all of a group."""
    measures, attributes = result.verdict.measures, (result.identifier or result.id).count("=")
    elements = sum(math.prod(shape) for shape in result.shapes.values())
    is_narrow = any(dtype(measure.dtype).bits < 32 for measure in measures)
    worst = max(filter(math.isfinite, (measure.worst_used or 0.0 for measure in measures)), default=0.0)
    has_remark = any(lean_text(measure) or looks_rounded_between(measure) for measure in measures)
    shapes, layouts = result.shapes.values(), len(layouts_of(result))
    is_degenerate = () in shapes or not all(map(math.prod, shapes)) or elements <= len(shapes)  # tells little of others
    size = elements * 4 ** max(0, max(map(len, shapes), default=0) - _PLAIN_RANK)
    is_whole = result.attributes.get("part") == "outputs"  # of a model: a node that is wrong explains more
    return is_whole, is_degenerate, _silence(result), is_narrow, not has_remark, layouts, attributes, size, -worst


def group_lines(group: FailureGroup, *, with_map: bool = False) -> list[str]:
    """The failure block of a group: of its simplest call, then which cases fail so."""
    pattern = [f"  fails: {group.pattern}"] if group.pattern else []
    others = [f"  {others_text(group)}"] if group.others else []
    return [*explain(group.first, pattern, with_map=with_map, of_all=group.pattern.startswith("all ")), *others]


def others_text(group: FailureGroup) -> str:
    """``and 4 more like it: …`` with the names of some, one of each operator first."""
    of_each = {each.operator: each for each in reversed(group.others)}
    ordered = list(dict.fromkeys(map(id, [*reversed(of_each.values()), *group.others])))
    names = {id(each): each.id for each in group.others}
    named = ", ".join(names[each] for each in ordered[:_NAMED])
    more = ", …" if len(group.others) > _NAMED else ""
    operators = {each.operator for each in (group.first, *group.others)}
    of = f", of {len(operators)} operators" if len(operators) > 1 else ""
    return printable(f"and {len(group.others)} more like it{of}: {named}{more}")


def plain(result: CaseResult) -> CaseResult:
    """The result with the words of foreign code uncoloured; nothing else of it is changed."""
    verdict = result.verdict
    uncoloured = replace(verdict, message=without_ansi(verdict.message), details=_uncoloured(verdict.details))
    return replace(result, id=without_ansi(result.id), verdict=uncoloured)


def block(result: CaseResult) -> str:
    """The failure block of a result as one text: that of the terminal, but for colours of foreign output."""
    return "\n".join(explain(plain(result)))


def group_block(group: FailureGroup) -> str:
    """The failure block of a group as one text."""
    return "\n".join(group_lines(replace(group, first=plain(group.first))))


def _uncoloured(value: Any) -> Any:
    if isinstance(value, str):
        return without_ansi(value)
    if isinstance(value, Mapping):
        return {name: _uncoloured(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_uncoloured(each) for each in value]
    return value


def skeleton(text: str) -> tuple[str, ...]:
    """What texts share that differ in values alone: the words between these."""
    return tuple(_VALUE.split(text))


def merged_text(texts: Mapping[str, int]) -> str:
    """One text for all, which share their :func:`skeleton`: where values differ, the commonest and how many others."""
    words = skeleton(next(iter(texts)))
    values: list[Counter[str]] = [Counter() for _ in words[1:]]
    for text, count in texts.items():
        for place, value in zip(values, _VALUE.findall(text), strict=True):
            place[value] += count
    parts = [_one_of(place) for place in values]
    return "".join(part for pair in zip(words, [*parts, ""], strict=True) for part in pair)


def _one_of(values: Counter[str]) -> str:
    """``0.0, 3.0 or 4 others``; one value is itself."""
    ranked = [value for value, _ in values.most_common()]
    fitting = max(2, sum(len(", ".join(ranked[: count + 1])) <= _WIDTH for count in range(len(ranked))))
    if len(ranked) - fitting <= 1:
        return _joined(ranked)
    return _joined([*ranked[:fitting], f"{len(ranked) - fitting} others"])


def _joined(shown: Sequence[str]) -> str:
    """With commas, unless a value has some of its own."""
    *first, last = shown
    if not first:
        return last
    if any(", " in each and not each.startswith("[") for each in first):
        return " or ".join([*first, last])
    return f"{', '.join(first)} or {last}"
