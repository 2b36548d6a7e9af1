"""Expectations files: the failures that they waive, and those that they never waive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says, says_exactly

from optest.errors import PlanError
from optest.operators import OperatorRegistry
from optest.plan.expectations import EXPECTABLE_REASONS, Expectations, case_dtype, read_expectations, remedy
from optest.spec import (
    VALIDATION,
    Argument,
    Attribute,
    BackendTarget,
    CaseResult,
    Evidence,
    Fill,
    Measure,
    OperatorDescriptor,
    Reason,
    Status,
    TensorSpec,
    TestCase,
    Verdict,
    dtype,
)

DESCRIPTOR = OperatorDescriptor(
    name="soft",
    signature="input, index? -> out",
    aliases=("Soft",),
    attributes=(
        Attribute(name="dim", type="int", default=-1, aliases=("axis",)),
        Attribute(name="dims", type="ints", default=None),
    ),
)
LINE = "  - {op: soft, dtype: float16, reason: VALUE, why: rounded twice}\n"


Read = Callable[..., Expectations]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads a file with these lines of expectations."""
    operators = OperatorRegistry()
    operators.register(DESCRIPTOR)
    path = tmp_path / "expected.yaml"

    def expectations(lines: str, head: str = "", **more: Any) -> Expectations:
        path.write_text(f"version: 1\n{head}expected:\n{lines}")
        return read_expectations(path, operators=operators, **more)

    return expectations


def case(*dtypes: str, fill: str = "randn", tags: tuple[str, ...] = ("set:ordinary",), **attributes: Any) -> TestCase:
    specs = [TensorSpec(dtype=dtype(each), shape=(2, 3)) for each in dtypes or ("float16",)]
    inputs = tuple(
        Argument(name=name, path=f"input{index}", spec=spec, fill=Fill(kind=fill))
        for index, (name, spec) in enumerate(zip(("input", "index"), specs, strict=False))
    )
    return TestCase(descriptor=DESCRIPTOR, inputs=inputs, attributes=DESCRIPTOR.bind(attributes), tags=tags)


def failed(reason: Reason = Reason.VALUE, status: Status | None = None) -> Verdict:
    return Verdict(status=status or reason.status, reason=reason, message="is off")


def result(of: TestCase, verdict: Verdict) -> CaseResult:
    return CaseResult(
        id=of.id, key=of.key, operator="soft", target="x", reference="numpy", mode="forward", verdict=verdict, seed=0
    )


def test_the_stated_failure_is_expected(read: Read) -> None:
    found = read(LINE).waive(case(), failed())
    assert found.status is Status.XFAILED
    assert found.reason is Reason.VALUE
    assert says_exactly(found.message, "plan.is_off_expected_rounded")
    assert "expected.yaml:3" in found.details["expectation"]


@pytest.mark.parametrize(
    "verdict",
    [
        *map(failed, (Reason.NAN, Reason.RAISED, Reason.SIGNAL, Reason.DEADLINE)),
        failed(Reason.VALUE, Status.SUSPECT),
        Verdict(status=Status.PASSED, evidence=Evidence.REFUSED_AS_EXPECTED),
        Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED),
    ],
)
def test_nothing_else_is(read: Read, verdict: Verdict) -> None:
    assert read(LINE).waive(case(), verdict) is verdict


@pytest.mark.parametrize(
    ("where", "covered", "not_covered"),
    [
        ("{}", case(), case("float32")),
        ("{case_set: special}", case(tags=("set:special",)), case()),
        ("{case_set: [special, long]}", case(tags=("set:long",)), case(tags=("set:longer",))),
        ("{fill: special}", case(fill="special"), case()),
        ("{attributes: {dim: 0}}", case(dim=0), case(dim=1)),
        ("{attributes: {axis: 0}}", case(dim=0), case()),
        ("{attributes: {dim: {any: [0, -2]}}}", case(dim=-2), case(dim=1)),
        ("{attributes: {dims: [0, 1]}}", case(dims=(0, 1)), case(dims=(1, 0))),
        ("{attributes: {dim: 0}, fill: special}", case(dim=0, fill="special"), case(dim=0)),
    ],
)
def test_conditions(read: Read, where: str, covered: TestCase, not_covered: TestCase) -> None:
    found = read(LINE.replace("}", f", where: {where}}}"))
    assert found.waive(covered, failed()).status is Status.XFAILED
    assert found.waive(not_covered, failed()).status is Status.FAILED


def test_case_dtype_is_first_inexact_input() -> None:
    assert case_dtype(case("int64", "float16").dtypes) == "float16"
    assert case_dtype(case("int64", "int32").dtypes) == "int64"
    assert case_dtype(case("float32", "float16").dtypes) == "float32"


def test_a_line_that_excused_nothing_is_left_over(read: Read) -> None:
    found = read(LINE + LINE.replace("VALUE", "NAN"))
    excused = result(case(), found.waive(case(), failed()))
    assert [line.name for line in found.unused([case()], [excused])] == ["soft float16 NAN"]
    assert [line.name for line in found.unused([case()], [])] == ["soft float16 VALUE", "soft float16 NAN"]
    assert found.unused([case("float32")], []) == []  # nobody asked in that dtype


@pytest.mark.parametrize(
    ("written_for", "versions", "left_over"),
    [
        *(("", {"torch": each}, 1) for each in ("2.13.0+cpu", "2.13")),
        *(("", {"torch": each}, 0) for each in ("2.1", "2.130")),
        ("", {}, 0),
        ("AVX512.amx", {"torch": "2.13.0", "torch_cpu": "AVX512.amx"}, 1),
        ("AVX512.amx", {"torch": "2.13.0", "torch_cpu": "AVX512"}, 0),
    ],
)
def test_lines_of_another_version_may_be_left_over(
    read: Read, written_for: str, versions: dict[str, str], left_over: int
) -> None:
    line = LINE.replace("}", f", written_for: {{torch_cpu: {written_for}}}}}") if written_for else LINE
    found = read(line, 'written_for: {torch: "2.13"}\n', versions=versions)
    assert len(found.unused([case()], [])) == left_over
    assert found.waive(case(), failed()).status is Status.XFAILED


@pytest.mark.parametrize(("strict", "left_over"), [("true", 1), ("false", 0)])
def test_lenient_line_may_stay_unused(read: Read, strict: str, left_over: int) -> None:
    found = read(LINE.replace("}", f", strict: {strict}}}"))
    assert len(found.unused([case()], [])) == left_over
    assert len(found.labels_concerning([case()])) == left_over
    assert found.waive(case(), failed()).status is Status.XFAILED


@pytest.mark.parametrize("line", ['{case: "zzz*", reason: VALUE, why: x}', LINE.strip().removeprefix("- ")])
def test_lenient_line_must_cover_a_case(read: Read, line: str) -> None:
    line = f"  - {line.replace('}', ', where: {case_set: nowhere}, strict: false}')}\n"
    found = read(line)
    (idle,) = found.unused([case()], [])
    assert says_exactly(remedy(idle, [case()], []), "plan.its_conditions_fit_no")
    assert found.labels_concerning([case()]) == {idle.label: False}


@pytest.mark.parametrize("key", ["strict: false", "why: slow", 'case: "a*"', "op: softmax"])
def test_a_key_of_a_line_at_the_top(read: Read, key: str) -> None:
    with pytest.raises(PlanError) as caught:
        read(LINE, f"{key}\n")
    name = key.partition(":")[0]
    assert f"unknown key {name!r} of the file" in str(caught.value)
    assert says(str(caught.value), "plan.it_is_key_of", name=name)


def test_line_of_several_dtypes_needs_each(read: Read) -> None:
    several = read(LINE.replace("float16", "[float16, float32]").replace("soft,", "[soft],"))
    cases = [case(), case("float32")]
    assert {each.waive(of, failed()).status for each in (several,) for of in cases} == {Status.XFAILED}
    excused = [result(cases[0], several.waive(cases[0], failed()))]
    (idle,) = several.unused(cases, excused)
    assert idle.dtype == "float32"


def test_a_later_file_replaces_a_line(read: Read) -> None:
    one = read(LINE)
    other = read(LINE.replace("rounded twice", "another reason"))
    (line,) = Expectations.merge([one, other]).lines
    assert line.why == "another reason"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (LINE.replace("soft", "sofd"), "unknown operator 'sofd'"),
        (LINE.replace("float16", "float17"), "unknown dtype 'float17'"),
        (LINE.replace("VALUE", "VALU"), "unknown reason 'VALU'"),
        (LINE.replace("VALUE", "SIGNAL"), "reason is SIGNAL, which cannot be expected"),
        (LINE.replace("VALUE", "REFERENCE_FAILED"), "which cannot be expected"),
        (LINE.replace(", why: rounded twice", ""), "why"),
        (LINE.replace("why:", "wy:"), "unknown key 'wy'"),
        (LINE.replace("}", ", where: {fil: special}}"), "unknown key 'fil'"),
        (LINE.replace("}", ", where: {attributes: {din: 0}}}"), "unknown attribute of soft 'din'"),
        (LINE.replace("}", ", where: {attributes: {dim: a}}}"), "attribute dim is 'a'"),
        (LINE.replace("reason: VALUE, ", ""), "neither reason nor skip"),
        (LINE.replace("why:", "skip: true, why:"), "both reason and skip"),
        (LINE.replace("op: soft, ", ""), "no op with its dtype, no case and no model"),
        (LINE.replace("op: soft", 'op: "so*"'), "unknown operator 'so*'"),
        ("  - {skip: true, why: all of it}\n", "skip every case"),
        (LINE.replace("VALUE", "BAD_CASE"), "which cannot be expected"),
        (LINE + LINE, "expected twice, first in line 3"),
        (LINE.replace("float16", "[float16, float17]"), "unknown dtype 'float17'"),
        (LINE + LINE.replace("float16", "[float32, float16]"), "soft float16 VALUE is expected twice"),
        (LINE + LINE.replace("soft", "Soft"), "expected twice"),
    ],
)
def test_wrong_file_is_reported_with_line(read: Read, lines: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        read(lines)
    assert message in str(caught.value)
    assert "expected.yaml:" in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with refusal(PlanError, "plan.cannot_read_the_expectations"):
        read_expectations(tmp_path / "none.yaml", operators=OperatorRegistry())


def test_crashes_and_internal_errors_cannot_be_expected() -> None:
    crashes = {each for each in Reason if each.status in (Status.CRASHED, Status.TIMEOUT, Status.SKIPPED)}
    ours = {Reason.INTERNAL, Reason.REFERENCE_FAILED, Reason.BAD_CASE, Reason.NOTHING_COMPARED}
    assert not (crashes | ours) & set(EXPECTABLE_REASONS)


def fused() -> TestCase:
    return dataclasses.replace(case(), backend=BackendTarget(name="x", kind="x", variant="fused"))


@pytest.mark.parametrize(
    ("reason", "where", "covered", "other"),
    [
        (Reason.SHAPE, "group: validation", dataclasses.replace(case(), mode=VALIDATION), case()),
        (Reason.VALUE, "tier: full", case(tags=("tier:full",)), case(tags=("tier:parity",))),
        (Reason.VALUE, "variant: fused", fused(), case()),
    ],
)
def test_line_of_a_kind_covers_only_its_cases(
    read: Read, reason: Reason, where: str, covered: TestCase, other: TestCase
) -> None:
    line = LINE.replace("VALUE", reason.name).replace("why", f"where: {{{where}}}, why")
    found = read(line)
    assert found.waive(covered, failed(reason)).status is Status.XFAILED
    assert found.waive(other, failed(reason)).status is Status.FAILED
    assert found.unused([other], []) == []  # in a run of other cases it is no line too many
    assert len(found.unused([other, covered], [])) == 1


def test_line_of_variant_may_add_to_another(read: Read) -> None:
    lines = read(LINE + LINE.replace("why", "where: {variant: fused}, why"))
    assert len(lines.unused([case()], [])) == 1
    assert len(lines.unused([fused()], [])) == 2


def measured(output: str, *, wrong: int = 0, nonfinite: int = 0, **more: Any) -> Measure:
    counts = {"compared": 6, "mismatched": wrong, "nonfinite_mismatched": nonfinite}
    return Measure(output=output, dtype="float16", shape=(6,), **{**counts, "max_ulp_error": None, **more})


def wrong_by(ulp: float | None, *, nonfinite: int = 0) -> Verdict:
    errors = {"max_ulp_error": ulp, "max_abs_error": None if ulp is None else ulp / 1024}
    measure = measured("out", wrong=1, nonfinite=nonfinite, **errors)
    return Verdict(status=Status.FAILED, reason=Reason.VALUE, measures=(measure,))


@pytest.mark.parametrize(
    ("ulp", "nonfinite", "status"),
    [(2.0, 0, Status.XFAILED), (2.5, 0, Status.FAILED), (1.0, 1, Status.FAILED), (None, 0, Status.FAILED)],
)
def test_a_limit_excuses_no_larger_error(read: Read, ulp: float | None, nonfinite: int, status: Status) -> None:
    # A wrong kernel must not pass because another one is known to round twice.
    for limit in ("at_most_ulp: 2", "at_most_error: 2e-3"):
        lines = read(LINE.replace("why", f"{limit}, why"))
        assert lines.waive(case("float16"), wrong_by(ulp, nonfinite=nonfinite)).status is status
    anything = read(LINE)
    assert anything.waive(case("float16"), wrong_by(ulp, nonfinite=nonfinite)).status is Status.XFAILED


def test_a_limit_is_for_values(read: Read) -> None:
    stated = LINE.replace("VALUE", "NAN").replace("why", "at_most_ulp: 2, why")
    with pytest.raises(PlanError, match="at_most_ulp is set with reason NAN"):
        read(stated)


WRONG_GRADIENT = measured("grad.input0", wrong=2, nonfinite=2)
GRADIENTS = LINE.replace("VALUE", "NAN").replace("why", "where: {gradients: true}, why")


@pytest.mark.parametrize(
    ("measures", "status"),
    [
        ([measured("out"), WRONG_GRADIENT], Status.XFAILED),
        ([measured("out", wrong=1, nonfinite=1), WRONG_GRADIENT], Status.FAILED),
        ([measured("out", statistic=1.5, statistic_limit=1.0), WRONG_GRADIENT], Status.FAILED),
        ([measured("out"), measured("grad.input0", wrong=2, nonfinite=1)], Status.FAILED),
    ],
    ids=["gradients", "results as well", "results by their statistic", "numbers as well"],
)
def test_a_line_about_gradients_wants_right_results(read: Read, measures: list[Measure], status: Status) -> None:
    found = Verdict(status=Status.FAILED, reason=Reason.NAN, measures=tuple(measures))
    assert read(GRADIENTS).waive(case("float16"), found).status is status


def of_model(name: str, model: str = "gpt", where: str = "gpt.yaml:3") -> TestCase:
    return dataclasses.replace(case(tags=(f"model_{model}",)), name=f"{model}::{name}", where=where)


@pytest.mark.parametrize(
    ("selection", "covered"),
    [
        ('case: "get.*"', ["get.1"]),
        ('case: "gpt::get.1"', ["get.1"]),
        ('case: ["get.1", "put.?"]', ["get.1", "put.1"]),
        *((each, []) for each in ('case: "llama::*"', "model: llama", "model: gpt, dtype: int8")),
        ("model: gpt", ["get.1", "put.1"]),
        ('model: "g*", op: "so*"', ["get.1", "put.1"]),
    ],
)
def test_lines_about_cases_and_models(read: Read, selection: str, covered: list[str]) -> None:
    known = read(f"  - {{{selection}, reason: BAD_CASE, why: no such position}}\n")
    wrong = failed(Reason.BAD_CASE)
    names = [name for name in ("get.1", "put.1") if known.waive(of_model(name), wrong).status is Status.XFAILED]
    assert names == covered
    assert known.waive(of_model("get.1"), failed(Reason.VALUE)).status is Status.FAILED


def test_skip_line_counts_as_used(read: Read) -> None:
    known = read('  - {case: "get.*", skip: true, why: hangs}\n')
    left_out, other = known.skip(of_model("get.1")), known.skip(of_model("put.1"))
    assert (left_out.skip is not None and left_out.skip.reason, other.skip) == ("hangs", None)
    verdict = known.waive(left_out, Verdict(status=Status.SKIPPED, message="hangs"))
    assert known.unused([left_out, other], [result(left_out, verdict)]) == []
    assert len(known.unused([other], [])) == 1


def test_lines_of_included_file_cover_its_cases(read: Read) -> None:
    known = read('  - {case: "*", reason: BAD_CASE, why: w}\n').of_files(frozenset({"gpt.yaml"}))
    assert known.waive(of_model("a"), failed(Reason.BAD_CASE)).status is Status.XFAILED
    assert known.waive(of_model("a", where="other.yaml:3"), failed(Reason.BAD_CASE)).status is Status.ERROR
