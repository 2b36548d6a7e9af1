"""``check``: samples of operators asked of backends that behave in every way, in this process."""

from __future__ import annotations

import dataclasses
import io
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from texts import refusal, says, says_exactly

from optest.api import bootstrap, cases, check
from optest.api.baseline import offered_promises
from optest.api.checking import check as check_given
from optest.api.checking import check_request, listed, pairs_of_catalogue, write
from optest.api.earlier_runs import runs, what_failed
from optest.api.report import Report, diff, history, trend
from optest.api.running import run
from optest.api.second_opinion import with_second_opinion
from optest.backends import BackendDriver, Capability, Fault, Reason, backend_manager
from optest.backends.function import FunctionBackend
from optest.cli import main
from optest.errors import NothingSelected, PlanError, UnknownName, UsageError
from optest.operators import operators
from optest.plan.from_samples import cases_of_samples
from optest.reporting.history import kept_run
from optest.spec import (
    Attribute,
    Evidence,
    OperatorDescriptor,
    Rule,
    RuleClass,
    Sample,
    Status,
    TensorSpec,
    Tier,
    UnfitArguments,
    Verdict,
)
from optest.store import read_journal


def infer(specs: Any, attributes: Any) -> tuple[TensorSpec, ...]:
    if not specs[0].rank:
        raise UnfitArguments("input is a scalar, expected dimensions")
    return (TensorSpec(dtype=specs[0].dtype, shape=specs[0].shape),)


def reference(inputs: Any, attributes: Any) -> tuple[Any, ...]:
    return (2 * np.asarray(inputs[0], np.float64),)


def doubled_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case={"shapes": {"input": [2, 3]}}, tier=Tier.SMOKE)
    yield Sample(case_set="ordinary", case={"shapes": {"input": [5]}, "dtypes": ["float16"]})
    yield Sample(case_set="layouts", case={"shapes": {"input": {"shape": [2, 3], "strides": [1, 2]}}})
    yield Sample(case_set="refused", case={"shapes": {"input": []}, "expects_error": {"type": "Exception"}})
    yield Sample(case_set="sizes", case={"shapes": {"input": [1000]}}, tier=Tier.FULL)


def broken_samples() -> Iterator[Sample]:
    raise RuntimeError("no samples today")
    yield


DOUBLED = OperatorDescriptor(
    name="doubled",
    aliases=("twofold",),
    signature="input -> out",
    dtype_variants=(("float32",), ("float16",)),
    infer=infer,
    reference=reference,
    samples=doubled_samples,
    rule=Rule(kind=RuleClass.ULP, source="exact"),
)


class Own(BackendDriver):
    """Doubles as ``how`` says."""

    kind = "own"
    isolated = False

    def __init__(self, name: str, how: Callable[[Any], Any], lacks: Callable[[Any], str | None] = lambda _: None):
        self.name = name
        self._how, self._lacks = how, lacks

    def run(self, case: Any, inputs: Any) -> Any:
        if not inputs[0].ndim:
            raise ValueError("a scalar")
        return [self._how(inputs[0]).astype(inputs[0].dtype)]

    def unsupported(self, case: Any) -> str | None:
        return self._lacks(case)


def right(array: Any) -> Any:
    return array * 2


def wrong_in_float16(array: Any) -> Any:
    return array * 2.5 if array.dtype == np.float16 else array * 2


def unsupported_at_last(array: Any) -> Any:
    raise Fault(Reason.UNSUPPORTED, "no kernel")


class Judge(Own):
    """Is wrong, and brings expected values that say otherwise."""

    def golden(self, case: Any) -> Any:
        return [np.zeros(each.shape, str(each.dtype)) for each in case.outputs] or None


class Inferring(Own):
    """Knows its shapes, or takes all for flat, and computes nothing but what it refuses."""

    def infer_shapes(self, case: Any) -> Any:
        if self.name == "flat":
            return [TensorSpec(dtype=case.dtypes[0], shape=(6,))]
        if not case.inputs[0].spec.rank:
            raise ValueError("a scalar has no dimensions")
        return infer([each.spec for each in case.inputs], case.attributes)


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator and the backends, for this test alone."""
    bootstrap()
    operators.names()
    for registry in (operators._registry, backend_manager._registry):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_aliases", dict(registry._aliases))
    for name in ("_kinds", "_lazy"):  # a driver that is loaded in a test has to be loaded again after it
        monkeypatch.setattr(backend_manager, name, dict(getattr(backend_manager, name)))
    operators.register(DOUBLED)
    for driver in (
        Own("right", right),
        Own("wrong", wrong_in_float16),
        Own("nothing", right, lambda _: "nothing is done here"),
        Own("no-float16", right, lambda case: "no float16" if "float16" in str(case.dtypes) else None),
        Own("at-last", unsupported_at_last),
        Judge("judge", lambda array: array * 0),
        Inferring("inferring", unsupported_at_last),
        Inferring("flat", right),
    ):
        backend_manager.register(driver)


def asked(tmp_path: Path, backend: str | None, **options: Any) -> tuple[Report, str]:
    """Report and output of a check of ``doubled``; without a backend only with these options."""
    stream = io.StringIO()
    named = {"op": ("doubled",), "backend": backend} if backend else {}
    given = {"runs_dir": str(tmp_path / "runs"), "isolate": "none", **named, **options}
    outcome = check_given(given, stream=stream)
    return outcome, stream.getvalue()


def statuses(outcome: Report) -> dict[str, Status]:
    return {result.id.partition("[")[0].removeprefix("doubled/"): result.status for result in outcome.results}


@pytest.mark.parametrize(
    ("backend", "exit_status", "not_passed", "printed", "said"),
    [
        ("right", 0, {}, "4 passed", "api.cases_of_operator_on"),
        ("wrong", 1, {"ordinary/2": Status.FAILED}, "failed in ordinary 1", "api.again_optest_run_op"),
        ("no-float16", 0, {"ordinary/2": Status.SKIPPED}, "3 passed", "api.case_skipped_as_unsupported"),
        (  # what a backend says of itself proves nothing
            "judge",
            1,
            dict.fromkeys(("ordinary/1", "ordinary/2", "layouts/1"), Status.SUSPECT),
            "1 passed",
            "api.the_backend_brought_the",
        ),
    ],
)
def test_statuses_of_a_check(
    tmp_path: Path, backend: str, exit_status: int, not_passed: dict[str, Status], printed: str, said: str
) -> None:
    outcome, text = asked(tmp_path, backend)
    names = ("ordinary/1", "ordinary/2", "layouts/1", "refused/1")
    assert (outcome.exit_status, statuses(outcome)) == (exit_status, dict.fromkeys(names, Status.PASSED) | not_passed)
    assert printed in text
    assert says(text, said)
    assert ("1 × UNSUPPORTED: no float16 (doubled)" in text) == (backend == "no-float16")


def test_the_group_without_values(tmp_path: Path) -> None:
    """Calls that differ in layout or size alone are asked once, and no value is computed: it would be wrong."""
    outcome, text = asked(tmp_path, "inferring", group="validation")
    assert {each.id.partition("[")[0]: each.verdict.evidence for each in outcome.results} == {
        "doubled/ordinary/1": Evidence.SPECS_COMPARED,
        "doubled/ordinary/2": Evidence.SPECS_COMPARED,
        "doubled/refused/1": Evidence.RAISED_AS_EXPECTED,
    }
    assert {each.mode for each in outcome.results} == {"validation"}
    assert says(text, "api.cases_of_operator_on_inferring")
    _, text = asked(tmp_path, "inferring", group="validation", keyword="refused")
    assert says(text, "api.case_of_operator_on")
    outcome, text = asked(tmp_path, "right", group="validation")  # it has no inference of shapes
    assert statuses(outcome) == {"refused/1": Status.PASSED}
    assert says(text, "api.shapes_and_dtypes_not")


def test_a_wrong_shape_is_found_again_by_its_line(tmp_path: Path) -> None:
    outcome, text = asked(tmp_path, "flat", group="validation")
    assert (outcome.exit_status, statuses(outcome)["ordinary/1"]) == (1, Status.FAILED)
    first = outcome.results[0]
    assert says_exactly(first.verdict.message, "api.out_the_shape_is")
    assert says(text, "api.again_optest_check_backend")
    words = dict(zip(*[iter(shlex.split(first.repro)[2:])] * 2, strict=True))
    outcome, _ = asked(tmp_path, "flat", group="validation", case=(words["--case"],))
    assert [each.id for each in outcome.results] == [first.id]


def test_what_the_group_cannot_do(tmp_path: Path) -> None:
    with refusal(UsageError, "api.computes_nothing_that_could"):
        asked(tmp_path, "right", group="validation", bench=True)
    with refusal(UsageError, "api.write_writes_cases_without"):
        write({"backend": "right", "op": ("doubled",), "group": "validation"}, str(tmp_path / "plan.yaml"))


def test_a_driver_registered_by_hand_is_asked_here_unless_workers_are_wanted(tmp_path: Path) -> None:
    driver = Own("by-hand", right)
    driver.kind, driver.isolated = "cpu", True
    backend_manager.register(driver)
    outcome, text = asked(tmp_path, "by-hand", isolate="auto")
    assert (outcome.exit_status, outcome.results[0].isolation) == (0, "none")
    assert says(text, "api.note_run_in_this")
    with pytest.raises(UsageError):
        asked(tmp_path, "by-hand", isolate="auto", jobs=2)


@pytest.mark.parametrize("backend", ["nothing", "at-last"])
def test_nothing_but_gaps_is_not_well(tmp_path: Path, backend: str) -> None:
    """A refused call that a backend does not support shows nothing either."""
    if backend == "at-last":  # it refuses scalars by itself, before it says that it has no kernel
        backend_manager.get(backend).run = lambda case, inputs: unsupported_at_last(inputs)  # type: ignore[method-assign]
    outcome, text = asked(tmp_path, backend)
    assert (outcome.exit_status, {*statuses(outcome).values()}) == (5, {Status.SKIPPED})
    assert "no case ran" in text
    assert "nothing passed" in text


@pytest.mark.parametrize(
    ("backend", "message"),
    [pytest.param("nothing", "nothing is done here", marks=pytest.mark.heavy), ("at-last", "no kernel")],
)
def test_unsupported_cases_are_one_result_for_each_reason(backend: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    driver = backend_manager.get("at-last")
    driver.run = lambda case, inputs: unsupported_at_last(inputs)  # type: ignore[method-assign]
    outcome, text = asked(tmp_path, backend, report=("junit",), report_path=str(file))
    (result,) = outcome.results
    number = sum(result.verdict.details["cases"].values())
    assert number == len(asked(tmp_path, "right")[0].results) > 1
    assert result.verdict.message == f"{message} ({number} cases)"
    info, summary = outcome.directory.read_info(), outcome.summary
    assert {info.total, summary.total, summary.finished, summary.by_status["skipped"]} == {number}
    assert says(text, "api.cases_of_operator", number=number)
    assert says(text, "api.cases_skipped_as_unsupported", number=number)
    assert (file.read_text().count("<testcase"), list((outcome.directory.path / "artifacts").iterdir())) == (1, [])

    again, _ = asked(tmp_path, backend, resume=outcome.directory.id)
    assert (len(again.results), again.summary.by_status) == (1, {"skipped": number})
    assert what_failed(str(tmp_path / "runs"), outcome.directory.id).unfinished == 0
    known = kept_run(read_journal(outcome.directory.journal_path))
    assert sorted(known.results) == sorted(each.id for each in asked(tmp_path, "right")[0].results)

    outcome, _ = asked(tmp_path, "no-float16", rounds=2)
    some = [each for each in outcome.results if each.status is Status.PASSED]
    path = outcome.directory.journal_path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    again, text = asked(tmp_path, "no-float16", rounds=2, resume=outcome.directory.id)
    assert sorted(each.id for each in again.results) == sorted(each.id for each in outcome.results)
    assert f"{len(some)} passed" in text


def test_a_damaged_run_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *_, damaged = [asked(tmp_path, "wrong")[0].directory for _ in range(3)]
    lines = damaged.journal_path.read_bytes().splitlines(keepends=True)
    damaged.journal_path.write_bytes(b"".join([*lines[:2], b"xx\n", *lines[3:]]))
    given = {"runs_dir": str(tmp_path / "runs")}
    assert history((), None, "terminal", None, given)[0].startswith("2 runs")
    first, _, last = [line.split()[0] for line in list(runs(given))[1:]]
    assert ["damaged" in line for line in runs(given)] == [False, False, False, True]
    for text, _ in (
        trend((), "terminal", None, given),
        diff((), "terminal", None, given),
        diff((first,), "terminal", None, given),
    ):
        assert first in text
        assert last not in text
    repeated, _ = asked(tmp_path, "wrong", rerun_failed="latest")
    assert repeated.exit_status == 1
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) >= 5
    assert all(f"run {damaged.id} is skipped: journal line is garbled" in note for note in notes)


@pytest.mark.parametrize("name", ["absent.py", "folder.py", "bytes.py", "syntax.py", "no_such_module"])
def test_a_function_in_no_readable_file_is_an_error_of_usage(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "absents.py").touch()
    (tmp_path / "bytes.py").write_bytes(b"\xff\x00")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    assert main(["check", "--function", f"{name}:right"]) == 2
    error = capsys.readouterr().err
    assert name.removesuffix(".py") in error
    assert ("did you mean absents.py" in error) == (name == "absent.py")


def out_of_memory(array: Any) -> Any:
    raise Fault(Reason.OUT_OF_MEMORY, "full")


@pytest.mark.parametrize(
    ("of_scalars", "status", "reason"),
    [(right, Status.FAILED, Reason.NOT_REFUSED), (out_of_memory, Status.ERROR, Reason.OUT_OF_MEMORY)],
)
def test_only_a_refusal_is_as_expected(tmp_path: Path, of_scalars: Any, status: Status, reason: Reason) -> None:
    driver = backend_manager.get("right")
    driver.run = lambda case, inputs: [(right if inputs[0].ndim else of_scalars)(inputs[0])]  # type: ignore[method-assign]
    outcome, _ = asked(tmp_path, "right")
    (result,) = [each for each in outcome.results if each.status is not Status.PASSED]
    assert (outcome.exit_status, result.status, result.reason) == (1, status, reason)
    assert result.id.startswith("doubled/refused/1")


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"tier": "smoke"}, ["ordinary/1"]),
        ({"tier": "smoke", "dtype": "float16"}, ["ordinary/2"]),
        ({"tier": "smoke", "dtype": "float16,float32"}, ["ordinary/1", "ordinary/2"]),
        ({"tier": "full"}, ["ordinary/1", "ordinary/2", "layouts/1", "refused/1", "sizes/1"]),
        ({"case_set": ("layouts", "refused")}, ["layouts/1", "refused/1"]),
        ({"dtype": "float16"}, ["ordinary/2"]),
        ({"dtype": "float16,float32"}, ["ordinary/1", "ordinary/2", "layouts/1", "refused/1"]),
        ({"keyword": "layouts or float16"}, ["ordinary/2", "layouts/1"]),
        ({"case": ("doubled/ord*",)}, ["ordinary/1", "ordinary/2"]),
        ({"tag": ("tier:smoke",)}, ["ordinary/1"]),
        ({"skip_tag": ("set:ordinary",)}, ["layouts/1", "refused/1"]),
        ({"op": ("twofold", "doubled")}, ["ordinary/1", "ordinary/2", "layouts/1", "refused/1"]),
    ],
)
def test_what_is_asked(options: dict[str, Any], numbers: list[str]) -> None:
    found = check_request({"op": ("doubled",), "backend": "right", **options}).run.cases
    assert [case.id.partition("[")[0] for case in found] == [f"doubled/{number}" for number in numbers]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"case": ("doubled/ordinary/2[*",)}, 1),
        ({"case_set": ("layouts",)}, 1),
        ({"case": ("doubled/layouts/[12][[]*", "doubled/refused/*")}, 2),
        # Only after the search among all cases it is known that nothing matches.
        ({"case": ("nothing*",)}, 4),
        ({"case": ("doubled/refused/*",), "tag": ("tier:smoke",)}, 4),
    ],
)
def test_check_builds_only_cases_that_filters_may_keep(
    options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []

    def counted(*given: Any, **more: Any) -> Any:
        made = cases_of_samples(*given, **more)
        built.append(len(made.cases))
        return made

    monkeypatch.setattr("optest.api.checking.cases_of_samples", counted)
    with suppress(UsageError, NothingSelected):
        check_request({"op": ("doubled",), "backend": "right", **options})
    assert built[-1] == count


def test_run_reports_wrong_cases_only_of_the_selection(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    wrong = "{op: add, shapes: {input0: [2], input1: [3]}}"
    plan.write_text(f"cases: [{{op: relu, name: good, shapes: {{input0: 4}}}}, {wrong}]")
    assert [case.id for case in cases(plan, case="goo?")] == ["good"]
    for glob in ("*", "add*", "god", None):
        with pytest.raises(PlanError) as caught:
            cases(plan, case=glob)
        assert [problem.path for problem in caught.value.problems] == ["$.cases[1].shapes"]


@pytest.mark.parametrize(("name", "dtype"), [("softmax", "float16"), ("relu", "int8"), ("index_select", "bfloat16")])
def test_the_smoke_call_in_another_dtype(name: str, dtype: str) -> None:
    given = {"op": (name,), "backend": "numpy", "tier": "smoke"}
    (usual,), (other,) = (check_request({**given, **more}).run.cases for more in ({}, {"dtype": dtype}))
    assert other.dtypes[0].name == dtype
    assert [each.spec.shape for each in usual.inputs] == [each.spec.shape for each in other.inputs]
    assert dict(usual.attributes) == dict(other.attributes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op": ("doubld",)}, "did you mean 'doubled'"),
        ({"case_set": ("layout",)}, "did you mean 'layouts'"),
        ({"dtype": "float17"}, "float17"),
        ({"case": ("nothing*",)}, "no case matches"),
        ({"tag": ("set:none",)}, "unknown tag"),
        ({"backend": ""}, "is empty; set a value, or leave it out"),
        ({"backend": None}, "no backend is named"),
        ({"backend": "rigth"}, "did you mean 'right'"),
        ({"expectations": ("none.yaml",)}, "cannot read the expectations"),
        ({"torch_device": "cpu"}, "--torch-device is not for backend right"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], message: str) -> None:
    with pytest.raises((UsageError, UnknownName, PlanError), match=message):
        check_request({"op": ("doubled",), "backend": "right", **options})


@pytest.mark.torch
def test_an_option_of_one_backend_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request = check_request({"op": ("relu",), "case_set": ("ordinary",), "torch_device": "cpu"})
    assert (request.run.driver.name, request.run.settings["backend"]) == ("torch", "torch")
    with refusal(UsageError, "api.no_backend_is_named"):
        check_request({"op": ("relu",), "torch_device": "cpu", "mapping": "infiniop"})
    # and options of two backends the one that takes both
    module = ModuleType("kernels_on_a_device")
    vars(module)["relu"] = lambda x: np.maximum(x, 0)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    request = check_request({"function": ("kernels_on_a_device:relu",), "torch_device": "cpu"})
    assert request.run.driver.name == "function"


def test_an_operator_of_which_nothing_is_known_is_named(tmp_path: Path) -> None:
    operators.register(OperatorDescriptor(name="bare", attributes=(Attribute(name="k", type="int"),)))
    _, text = asked(tmp_path, "right", op=("doubled", "bare"))
    assert says(text, "api.no_case_sets_so")
    with refusal(NothingSelected, "api.bare_cannot_be_checked"):
        asked(tmp_path, "right", op=("bare",))
    operators.override("doubled", samples=broken_samples)
    with refusal(UsageError, "api.the_samples_of_doubled"):
        asked(tmp_path, "right")


def test_an_operator_without_samples_is_asked_what_its_signature_says(tmp_path: Path) -> None:
    operators.register(OperatorDescriptor(name="bare", reference=reference, dtype_variants=(("float16",),)))
    outcome, text = asked(tmp_path, "right", op=("bare",))
    sets = "ordinary, dtypes, layouts, sizes, special; of shapes as input0 4x37"
    assert says(text, "api.case_sets_of_bare", sets=sets)
    suggested = [found for each in outcome.results if (found := each.verdict.details.get("suggested_tolerance"))]
    assert len(suggested) > 30
    rtol, atol = (max(each[place] for each in suggested) for place in (0, 1))
    assert says(text, "api.bare_has_no_rule")
    assert f"float16 rtol={rtol:g}, atol={atol:g}" in text
    operators.override("bare", rule=Rule(kind=RuleClass.ULP, source="exact"))
    outcome, _ = asked(tmp_path, "right", op=("bare",))
    assert {each.status for each in outcome.results} == {Status.PASSED}


def quantized(inputs: Any, attributes: Any) -> tuple[Any, ...]:
    x = np.asarray(inputs[0], np.float64)
    scales = np.maximum(np.abs(x).max(axis=-1, initial=0), 1e-6) / (63 if attributes["narrow"] else 127)
    return np.rint(x / scales[:, None]).astype(np.int8), scales


def either_neighbour(inputs: Any, attributes: Any, actual: Any) -> list[Any]:
    exact = np.asarray(inputs[0], np.float64) / quantized(inputs, attributes)[1][:, None]
    return [np.abs(actual[0] - exact) < 1, None]


class Quantizer(Own):
    def run(self, case: Any, inputs: Any) -> Any:
        x = np.asarray(inputs[0], np.float64)
        _, scales = quantized(inputs, {"narrow": case.attributes["narrow"] and self.name != "deaf"})
        q = np.floor(x / scales[:, None]).astype(np.int8)
        q[4096 if self.name == "short" else len(q) :] = 0
        scales = scales.astype(inputs[0].dtype if self.name == "coarse" else np.float32)
        return [q, scales.astype(np.float32)]


def test_own_operator_is_checked_by_its_signature(tmp_path: Path) -> None:
    operators.register(
        OperatorDescriptor(
            name="bare",
            signature="x: T[rows, columns] -> q: int8[rows, columns], scales: float32[rows]",
            attributes=(Attribute(name="narrow", type="bool", default=False),),
            dtype_variants=(("float32",), ("bfloat16",)),
            reference=quantized,
            alternatives=either_neighbour,
            rule=Rule(kind=RuleClass.CLOSE, source="torch.testing"),
        )
    )
    failed: dict[str, set[str]] = {}
    for name in ("honest", "deaf", "short", "coarse"):
        backend_manager.register(Quantizer(name, right))
        outcome, _ = asked(tmp_path, name, op=("bare",))
        failed[name] = {each.id for each in outcome.results if each.status is not Status.PASSED}
    assert failed.pop("honest") == set()
    assert {each.split("/")[1] for each in failed["deaf"]} == {"attributes"}
    assert all(int(each.partition("](")[2].split("x")[0]) > 4096 for each in failed["short"])
    assert all("bfloat16" in each for each in failed["coarse"])
    assert all(failed.values())


LINE = "version: 1\nexpected:\n  - {op: doubled, dtype: float16, reason: VALUE, why: a known slip}\n"


def known(tmp_path: Path, text: str = LINE) -> dict[str, tuple[str, ...]]:
    """The option with a file of these expectations."""
    path = tmp_path / "known.yaml"
    path.write_text(text)
    return {"expectations": (str(path),)}


def test_an_expected_failure_is_excused_and_told_apart(tmp_path: Path) -> None:
    outcome, text = asked(tmp_path, "wrong", **known(tmp_path))
    assert (outcome.exit_status, statuses(outcome)["ordinary/2"]) == (0, Status.XFAILED)
    assert "3 passed, 1 expected difference" in text
    assert says(text, "api.expectations_line_for_of")


def test_a_line_that_excuses_nothing_fails_the_check(tmp_path: Path) -> None:
    line = known(tmp_path)
    outcome, text = asked(tmp_path, "right", **line)
    assert outcome.exit_status == 1
    assert says(text, "api.expected_but_did_not")
    assert "; delete the line" in text
    for narrowed in ({"tier": "smoke"}, {"dtype": "float32"}, {"case_set": ("layouts",)}, {"keyword": "ordinary"}):
        assert asked(tmp_path, "right", **line, **narrowed)[0].exit_status == 0
    outcome, text = asked(tmp_path, "right", **line, seed=5)
    assert outcome.exit_status == 0
    assert says(text, "api.expected_but_did_not_happen")
    assert asked(tmp_path, "right", **line, seed=0)[0].exit_status == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("VALUE", "NAN", "api.what_it_covers_went"),
        ("why:", "at_most_ulp: 0.001, why:", "api.what_it_covers_is"),
        ("why:", "where: {case_set: ordinery}, why:", "api.its_conditions_fit_no"),
    ],
)
def test_unfit_expectation_explains_itself(tmp_path: Path, old: str, new: str, said: str) -> None:
    _, text = asked(tmp_path, "wrong", **known(tmp_path, LINE.replace(old, new)))
    assert says(text, said)
    assert ("doubled float16 NAN (" in text) == (new == "NAN")


def mixed_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case={"shapes": {"input": [2]}, "dtypes": ["float16"]}, tier=Tier.SMOKE)
    both = {"shapes": {"input": [2], "other": [2]}, "dtypes": ["float16", "float32"]}
    yield Sample(case_set="ordinary", case=both)


def test_a_dtype_asked_for_does_not_ask_in_full_what_it_is_mixed_with(tmp_path: Path) -> None:
    operators.override("doubled", samples=mixed_samples, signature="input, other? -> out", dtype_variants=())
    assert len(check_request({"op": ("doubled",), "backend": "right", "dtype": "float32"}).run.cases) == 1
    for dtype, status in (("float32", 0), ("float16", 1)):
        assert asked(tmp_path, "right", **known(tmp_path), dtype=dtype)[0].exit_status == status


def test_what_would_be_asked_is_listed() -> None:
    lines = list(listed({"op": ("doubled",), "backend": "right"}))
    assert len(lines) == 4
    assert lines[2].startswith("doubled/layouts/1[float32](2x3)")
    assert says(lines[2], "api.set_layouts_tier_parity")
    assert lines[2].endswith("doubled_samples")


def test_what_would_be_asked_is_written_as_a_plan(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.yaml")
    given = {"op": ("doubled",), "backend": "right", "seed": 3}
    assert "4 cases written" in write(given, path)
    outcome = run({"plan": path, "runs_dir": str(tmp_path / "runs"), "quiet": 2, "isolate": "none"})
    assert outcome.exit_status == 0
    assert [(each.id, each.key) for each in outcome.results] == [
        (each.id, each.key) for each in check_request(given).run.cases
    ]


def test_a_check_can_be_resumed_by_its_name(tmp_path: Path) -> None:
    first, _ = asked(tmp_path, "wrong", exitfirst=True, tier="full")
    assert len(first.results) < 5
    again = check(resume="latest", runs_dir=str(tmp_path / "runs"), quiet=2, isolate="none")
    assert len(again.results) == 5
    assert again.summary.by_status == {"passed": 4, "failed": 1}


def test_pairs_are_counted_by_the_dtype_that_leads() -> None:
    descriptor = OperatorDescriptor(name="x", dtype_variants=(("float32",), ("bool", "float16"), ("int8", "int8")))
    assert pairs_of_catalogue([descriptor]) == {("x", "float32"), ("x", "float16"), ("x", "int8")}


def ids(outcome: Report) -> set[str]:
    return {result.id for result in outcome.results}


@pytest.mark.heavy
def test_shards_share_out_what_is_asked(tmp_path: Path) -> None:
    whole = ids(asked(tmp_path, "right", op=("doubled", "relu"))[0])
    parts = [ids(asked(tmp_path, "right", op=("doubled", "relu"), shard=f"{part}/3")[0]) for part in (1, 2, 3)]
    assert all(parts)
    assert set().union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)
    with pytest.raises(UsageError, match="--shard is '4/3'"):
        asked(tmp_path, "right", shard="4/3")


def test_what_failed_is_asked_again(tmp_path: Path) -> None:
    again = {"rerun_failed": "latest", "no_color": True}
    first, _ = asked(tmp_path, "wrong", seed=3)
    asked(tmp_path, "right")
    with refusal(NothingSelected, "api.nothing_went_wrong_in"):
        asked(tmp_path, None, **again)
    outcome, text = asked(tmp_path, "wrong", **again, seed=3)
    assert ids(outcome) == {"doubled/ordinary/2[float16](5)"}
    assert f"note: re-run of failures of run {first.directory.id} on wrong: 1 case" in text
    alone, _ = asked(tmp_path, None, rerun_failed=first.directory.id)  # backend, operator and seed as they were
    assert [(each.id, each.seed) for each in alone.results] == [("doubled/ordinary/2[float16](5)", 3)]
    with refusal(UsageError, "api.is_check_of_no"):
        asked(tmp_path, "no-float16", **again, op=())


def test_a_run_is_no_check(tmp_path: Path) -> None:
    runs = {"runs_dir": str(tmp_path)}
    case = {"op": ("doubled",), "dtype": "float16", "shape": ("input=5",)}
    made = run({**case, **runs, "backend": "wrong", "isolate": "none", "quiet": 2})
    with pytest.raises(UsageError, match=f"is no check\n  re-run its failures: optest run --lf {made.directory.id}"):
        check_request({"rerun_failed": made.directory.id, **runs})
    with refusal(UsageError, "api.is_no_check_go"):
        check(resume="latest", **runs)


@pytest.mark.parametrize("part", [{"shard": "1/50"}, {"rerun_failed": "latest"}])
def test_a_part_of_a_check_holds_no_expectation_to_account(tmp_path: Path, part: dict[str, Any]) -> None:
    line = known(tmp_path, LINE.replace("float16", "float32").replace("a known slip", "it was once so"))
    asked(tmp_path, "wrong")
    _, text = asked(tmp_path, "wrong", **line)
    assert says(text, "api.expected_but_did_not_happen_2")
    _, text = asked(tmp_path, "wrong", **line, op=("doubled", "relu"), **part)
    assert "did not occur" not in text


class Adds(Own):
    """Adds equal shapes of one dtype, row by row, as a kernel of a tutorial does."""

    def run(self, case: Any, inputs: Any) -> Any:
        one, other = inputs
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise ValueError("shapes or dtypes differ")
        one, other = (
            np.lib.stride_tricks.as_strided(each, (each.size,), (each.itemsize,)).reshape(each.shape) for each in inputs
        )
        return [self._how((one + one.dtype.type(case.attributes["alpha"]) * other).astype(one.dtype))]


PLAIN = SimpleNamespace(measures=(), details={})


def parity_cases(name: str) -> list[Any]:
    """The cases of an operator that are no refusals."""
    cases = check_request({"op": (name,), "tier": "parity", "backend": "numpy"}).run.cases
    return [case for case in cases if case.expects_error is None]


def offered(
    cases: list[Any],
    fails: Callable[[Any], bool],
    reason: Callable[[Any], Reason] = lambda _: Reason.RAISED,
    *,
    verdict: Any = PLAIN,
    operator: str | None = None,
    skips: Callable[[Any], bool] = lambda _: False,
) -> list[str]:
    """What is offered to a function of which these cases fail."""
    results = [
        SimpleNamespace(
            id=case.id,
            operator=operator or case.descriptor.name,
            status=Status.SKIPPED if skips(case) else Status.FAILED if fails(case) else Status.PASSED,
            reason=reason(case) if fails(case) else None,
            verdict=verdict,
        )
        for case in cases
    ]
    return list(offered_promises(results, {case.id: case for case in cases}, FunctionBackend()))  # type: ignore[arg-type]


def test_a_promise_is_offered_where_plain_calls_pass(tmp_path: Path) -> None:
    some = {
        "op": ("add",),
        "case_set": ("ordinary", "sizes", "broadcast", "layouts", "dtypes"),
        "dtype": ("float32", "int32"),
    }
    words = "fail; if it is not meant for these, add "
    backend_manager.register(Adds("adds", np.asarray))
    outcome, text = asked(tmp_path, "adds", **some)
    (line,) = [each for each in text.splitlines() if words in each]
    assert line.startswith("add: ")
    for which in ("with inputs that are broadcast", "with inputs in other layouts", "of mixed dtypes"):
        assert f"calls {which}" in line, line
    lacks = eval(f"lambda case: {line.partition('return ')[2]}", {"Capability": Capability})
    backend_manager.register(Adds("promises", np.asarray, lacks))
    again, text = asked(tmp_path, "promises", **some)
    assert (again.exit_status, words in text) == (0, False), text

    given = {**some, "backend": "adds", "runs_dir": str(tmp_path / "runs")}
    cases = {case.id: case for case in check_request(given).run.cases}
    (line,) = offered_promises(outcome.results, cases, FunctionBackend())
    assert line.endswith('add @optest.kernel("add", broadcasts=False, layouts=("dense",), promotes=False)')
    (line,) = offered_promises(outcome.results, cases, SimpleNamespace(runs_programs=True))  # type: ignore[arg-type]
    assert line.endswith('promises: {broadcasts: false, layouts: ["dense"], promotes: false}')
    assert not list(offered_promises(outcome.results, cases, backend_manager.get("numpy")))

    backend_manager.register(Adds("wrong-adds", lambda array: array + (array.shape[-1:] == (37,))))
    _, text = asked(tmp_path, "wrong-adds", **some)
    assert words not in text, "plain calls are wrong as well"


@pytest.mark.heavy
def test_a_promise_is_offered_only_where_nearly_all_that_it_excludes_fails() -> None:
    cases = parity_cases("add")

    def promise(*given: Any, **more: Any) -> str:
        return next(iter(offered(cases, *given, **more)), "").partition('("add", ')[2]

    def ranks(case: Any) -> set[int]:
        return {each.spec.rank for each in case.inputs}

    mixed = [case for case in cases if len({each.spec.dtype for each in case.inputs}) > 1]
    assert promise(lambda case: 0 in case.inputs[0].spec.shape) == "", "of calls without elements"
    assert promise(lambda case: case is mixed[0]) == "", "of one call"
    assert promise(lambda case: case in mixed[::2]) == "", "of half of them"
    assert promise(lambda case: case in mixed) == "promotes=False)"

    def of(*names: str) -> list[Any]:
        return [case for case in cases if {each.spec.dtype.name for each in case.inputs} <= {*names}]

    assert promise(lambda case: case in mixed + of("bool")).startswith("promotes=False, dtypes=(")
    bytes_, half = of("int8"), of("float16")
    off = promise(lambda case: case in mixed + bytes_, lambda c: Reason.VALUE if c in bytes_ else Reason.DTYPE)
    assert off == "promotes=False)", "wrong values of int8 are no lack of support, and hide no other promise"
    assert promise(lambda case: case not in half, lambda _: Reason.DTYPE) == 'dtypes=("float16",))'
    assert promise(lambda case: case not in half, lambda _: Reason.UNWRITTEN) == ""
    assert promise(lambda case: ranks(case) != {2}) == "ranks=(2,))"
    assert promise(lambda case: ranks(case) == {3}) == "", "the others are no range"
    for share, said in ((0.9, ""), (0.01, ""), (0.9, "actual / expected is one ratio: the ratio is 1.01")):
        measure = SimpleNamespace(is_off=True, mismatched=100 * share, nonfinite_mismatched=0, compared=100)
        verdict = SimpleNamespace(measures=[measure], details={"diagnosis": [said] if said else []})
        line = promise(lambda case: max(ranks(case)) > 3, verdict=verdict)
        assert bool(line) == (share > 0.5 and not said), "a fault in few elements, or a factor, is no lack of support"
    assert promise(lambda case: max(ranks(case)) > 3) == "ranks=(0, 1, 2, 3))"


@pytest.mark.parametrize(("operator", "is_offered"), [("function.m:slow", True), ("softmax", False)])
def test_other_case_sets_are_offered_if_special_values_fail(operator: str, is_offered: bool) -> None:
    cases = parity_cases("softmax")
    lines = offered(cases, lambda case: "set:special" in case.tags, lambda _: Reason.NAN, operator=operator)
    assert [": only calls with NaN" in line and "special" not in line.rpartition("--set")[2] for line in lines] == (
        [True] if is_offered else []
    )
    assert not offered(
        cases, lambda case: "set:special" in case.tags or case is cases[0], lambda _: Reason.NAN, operator=operator
    )


def test_no_promise_hides_wrong_values_of_float32() -> None:
    """Where 16 bits hide what is wrong, float32 and float64 fail."""

    def is_wide(case: Any) -> bool:
        return case.inputs[0].spec.dtype.bits >= 32

    cases = [case for case in parity_cases("softmax") if "set:ordinary" not in case.tags or not is_wide(case)]
    assert "dtypes" in "".join(offered(cases, is_wide))
    assert not offered(cases, is_wide, lambda _: Reason.VALUE)


@pytest.mark.parametrize(
    ("operator", "passes", "promise"),
    [
        (  # output = empty_like(x), then element after element in memory
            "add",
            lambda case, specs: (
                len({(each.shape, each.strides) for each in specs}) == 1
                and specs[0].storage_elements - specs[0].offset == specs[0].elements
                and case.outputs[0].dtype == specs[0].dtype != "bool"
            ),
            {"broadcasts": False, "layouts": ("dense",), "promotes": False},
        ),
        (  # row by row with a stride of 1, in float32
            "softmax",
            lambda case, specs: (
                specs[0].rank == 2
                and 1 in ((specs[0].strides or (1,))[-1], specs[0].shape[-1])
                and specs[0].dtype.name != "float64"
            ),
            {"ranks": (2,), "layouts": ("dense",), "dtypes": ("bfloat16", "float16", "float32")},
        ),
        # x · weight in the wider dtype of the two, as frameworks promote
        ("layer_norm", lambda case, specs: len({each.dtype for each in specs}) == 1, {"promotes": False}),
        # logits[N, C]: the target has another rank
        ("cross_entropy", lambda case, specs: specs[0].rank == 2, {"ranks": (2,)}),
        ("softmax", lambda case, specs: specs[0].dtype.name != "float16", {}),  # a loss of precision
        ("softmax", lambda case, specs: (specs[0].strides or (1,))[-1] != 2, {}),  # one of the layouts
    ],
)
def test_offered_promise_excludes_all_failures(
    operator: str, passes: Callable[[Any, Any], bool], promise: dict[str, Any]
) -> None:
    cases = parity_cases(operator)

    def is_skipped(case: Any) -> bool:
        return "bfloat16" in str(case.dtypes)

    def fails(case: Any) -> bool:
        return not passes(case, [each.spec for each in case.inputs])

    lines = offered(cases, fails, skips=is_skipped)
    if not promise:
        assert not lines
        return
    promised = eval(f"dict({lines[0].partition('kernel(')[2].partition(', ')[2]}")
    assert {name: value for name, value in promised.items() if name in promise} == promise, lines
    lacks = Capability(**promised).lacks
    assert not [each.id for each in cases if fails(each) and not is_skipped(each) and not lacks(each)]


def test_a_function_is_asked_for_no_opinion_of_torch_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "of_arrays_alone.py").write_text("import numpy as np\ndef relu(x):\n    return np.maximum(x, 0)\n")
    run = check_request({"function": ("of_arrays_alone:relu",), "isolate": "worker", "tier": "smoke"}).run
    monkeypatch.setattr("optest.api.second_opinion.is_installed", lambda _: False)
    monkeypatch.setattr("optest.api.second_opinion.backend_manager", None)
    off = Verdict(status=Status.FAILED, reason=Reason.VALUE, details={"diagnosis": ["the ratio is 2"]})
    with with_second_opinion(run) as asked:
        assert asked.revise(run.cases[0], off) == off


def test_what_its_reference_itself_gets_wrong_is_no_fault_of_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "overflows.py").write_text(
        "import numpy as np\n"
        "@np.errstate(all='ignore')\n"
        "def norm(x: np.ndarray):\n    return x / np.sqrt((x * x).sum(-1, keepdims=True))\n"
    )
    given = {
        "function": ("overflows:norm",),
        "reference": "overflows:norm",
        "shape": ("x=8x48",),
        "dtype": ("float16",),
    }
    run = check_request({**given, "case_set": ("ordinary",), "isolate": "worker"}).run
    ignored = Verdict(status=Status.FAILED, reason=Reason.VALUE, details={"diagnosis": ["as if x were ignored"]})
    with with_second_opinion(run) as asked:
        said = [asked.revise(case, ignored).details["diagnosis"][0] for case in run.cases]
    assert says(said, "api.as_if_were_ignored"), "of numbers that it can square"
    assert any("overflows:norm itself is wrong here, too, if it computes in float16" in each for each in said)


@pytest.mark.torch
def test_torchs_own_function_is_run_where_a_function_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_softmax.py").write_text("def softmax(x, dim=-1):\n    return x\n")
    run = check_request({"function": ("own_softmax:softmax",), "op": ("softmax",), "isolate": "worker"}).run
    cases = {case.id.partition("[")[0]: case for case in run.cases}
    off = Verdict(status=Status.FAILED, reason=Reason.VALUE)
    explained = dataclasses.replace(off, details={"diagnosis": ["the ratio is 2"]})
    refused = next(case for case in cases.values() if case.expects_error is not None)
    with with_second_opinion(run) as asked:
        said = [asked.revise(cases[name], off).details for name in ("softmax/attributes/1", "softmax/attributes/2")]
        others = [
            asked.revise(refused, off),
            asked.revise(cases["softmax/special/1"], Verdict(status=Status.UNCHECKED)),
        ]
    assert said[0] == {"torch": "torch's own softmax passes this case"}
    assert said[1] == {"torch": "torch's own softmax fails this case, too (expected difference of backend torch)"}
    assert [each.details for each in others] == [{}, {}]
    (tmp_path / "of_arrays.py").write_text("import numpy as np\ndef relu(x):\n    return np.maximum(x, 0)\n")
    run = check_request({"function": ("of_arrays:relu",), "isolate": "worker", "tier": "smoke"}).run
    for name in ("_MOST_S", "_MOST_REPEATED"):
        monkeypatch.setattr(f"optest.api.second_opinion.{name}", int(name == "_MOST_REPEATED"))
    with with_second_opinion(run) as asked:
        revised = [asked.revise(run.cases[0], each) for each in (explained, off, off)]
    assert ["repeated" in each.details for each in revised] == [False, True, False], "one failure is repeated"
    for other in (
        dataclasses.replace(run, driver=backend_manager.get("torch")),
        check_request({"backend": "right", "op": ("softmax",)}).run,
    ):
        with with_second_opinion(other) as asked:
            assert asked is other, "torch needs no second opinion, and a backend in this process no framework"


@pytest.mark.parametrize(
    ("options", "derived"),
    [
        ({"case": ["softmax/ordinary/1[[]*"]}, False),
        ({"case_set": ["ordinary"]}, False),
        ({"case": ["softmax/sizes/*"]}, True),
        ({"case": ["*float16*"]}, True),
        ({"case": ["softmax/ordinary/1[[]*"], "tier": "smoke"}, True),  # picks among all samples
        ({}, True),
    ],
)
def test_derived_samples_are_left_out_if_unselected(
    options: dict[str, Any], derived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    monkeypatch.setattr("optest.operators.derived_samples.derived_samples", lambda *given: built.append(given) or [])
    check_request({"backend": "numpy", "op": ["softmax"], **options})
    assert bool(built) is derived
