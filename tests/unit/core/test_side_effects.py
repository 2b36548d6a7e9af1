"""Changes that a case makes to the process that runs it: the case gets STATE, and no other case is affected."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import core_kit
import ml_dtypes
import numpy as np
import pytest
from core_kit import Answering, plugin_in, spec_of, worker_of
from test_every_reason import case_of  # type: ignore[import-not-found]
from test_session import session_of  # type: ignore[import-not-found]
from texts import refusal

from optest.backends import backend_manager
from optest.compare.verdict import compare_outputs
from optest.core import comparison, side_effects, worker_process
from optest.core.executors import InProcess
from optest.core.monkeypatches import PatchWatch, patch_watch
from optest.core.runner import TestRunner
from optest.core.worker_process import WorkerProcess
from optest.errors import UsageError
from optest.process import Child, start_child
from optest.spec import BackendTarget, ExpectedError, Reason, Status, TestCase, Verdict
from optest.spec.case import key_of

PLUGIN = """
import math, os, signal, sys, threading, time
import ml_dtypes
import numpy as np
import optest.compare.verdict, optest.core.comparison
from optest.backends import BackendDriver, backend_manager
from optest.spec import Evidence, Status, Verdict, dtype

def passes(*_, **__):
    return Verdict(status=Status.PASSED, evidence=Evidence.MEASURED)

def relu(x):
    return np.where(x > 0, x, x.dtype.type(0))

def write_everywhere():
    for number in range(3, 256):
        try:
            os.write(number, b"x" * 500)
        except OSError:
            pass

def dies_later():
    while not os.path.exists(os.environ["TRICKY_SPOILS"]):
        time.sleep(0.01)
    os._exit(3)

def reference(inputs, attributes):
    if os.path.exists(os.environ["TRICKY_SPOILS"]):
        os.remove(os.environ["TRICKY_SPOILS"])
        raise ValueError("spoilt")
    return [np.maximum(inputs[0], 0)]

def fails(inputs, attributes):
    with open(os.environ["TRICKY_SPOILS"], "a") as file:
        file.write("x")
    raise ValueError("always")

class Patched:
    maximum = staticmethod(lambda a, *_, **__: np.array(a))

TRICKS = {
    "numpy": lambda case: setattr(np, "maximum", Patched.maximum),
    "numpy dictionary": lambda case: vars(np).update(maximum=Patched.maximum),
    "linalg": lambda case: setattr(np.linalg, "norm", None),
    "math": lambda case: setattr(math, "sqrt", math.sin),
    "ml_dtypes": lambda case: setattr(ml_dtypes, "bfloat16", None),
    "builtins": lambda case: setattr(__import__("builtins"), "max", min),
    "judge": lambda case: setattr(optest.core.comparison, "compare_outputs", passes),
    "code": lambda case: setattr(optest.compare.verdict.compare_outputs, "__code__", passes.__code__),
    "defaults": lambda case: setattr(optest.compare.verdict.compare_outputs, "__kwdefaults__", {"every_measure": True}),
    "class": lambda case: setattr(Verdict, "status", Status.PASSED),
    "reference": lambda case: object.__setattr__(case.descriptor, "reference", lambda inputs, _: inputs),
    "reference's module": lambda case: setattr(
        sys.modules[case.descriptor.reference.partition(":")[0]],
        case.descriptor.reference.partition(":")[2],
        lambda inputs, _: inputs,
    ),
    "tolerance": lambda case: object.__setattr__(case, "tolerances", (1,)),
    "shape": lambda case: object.__setattr__(case.inputs[0].spec, "shape", (1,)),
    "timer": lambda case: signal.setitimer(signal.ITIMER_REAL, 60),
    "virtual timer": lambda case: signal.setitimer(signal.ITIMER_VIRTUAL, 60),
    "handler": lambda case: signal.signal(signal.SIGTERM, lambda *_: None),
    "blocked": lambda case: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
    "folder": lambda case: os.chdir("/"),
    "stream": lambda case: sys.stdout.close(),
    "descriptor": lambda case: os.close(0),
    "all descriptors": lambda case: os.closerange(3, 256),
    "foreign bytes": lambda case: write_everywhere(),
}

class Tricky(BackendDriver):
    name = kind = "tricky"

    def run(self, case, inputs):
        if case.name in TRICKS:
            TRICKS[case.name](case)
        elif case.name == "prints":
            print("still here")
        elif case.name == "writes and waits":
            write_everywhere()
            time.sleep(30)
        elif case.name == "seldom":
            np._core.fromnumeric.choose = None
        elif case.name == "identity":
            return [inputs[0]]
        elif case.name == "waits for the end":
            threading.Thread(target=dies_later).start()
        elif case.name == "raises":
            os.chdir("/")
            raise ValueError("no")
        return [relu(inputs[0])]

def register():
    backend_manager.register(Tricky(), replace=True)
"""
AT_LOAD = """
import numpy as np
np.maximum = lambda a, *_, **__: np.array(a)
"""
TRICKS = [line.split('"')[1] for line in PLUGIN.splitlines() if line.startswith('    "') and ": lambda" in line]
TRICKS += ["reference's module"]


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "patches_at_load.py").write_text(AT_LOAD)
    with plugin_in(folder, "tricky_backend", PLUGIN):
        yield


def tricky_worker(folder: Path, *plugins: str) -> AbstractContextManager[WorkerProcess]:
    variables = {"TRICKY_SPOILS": str(folder / "spoils")}
    return worker_of("tricky", folder, "tricky_backend", *plugins, variables=variables)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    with tricky_worker(tmp_path) as executor:
        yield executor


def relu_of(name: str) -> TestCase:
    spec = spec_of(len(name) + 2)
    return core_kit.case_of("relu", spec, name=name, outputs=(spec,), backend=BackendTarget(name="tricky"))


def verdicts_of(worker: WorkerProcess, names: list[str], *, looks_ahead: bool = True) -> list[Verdict]:
    cases = [[relu_of(name)] for name in names]
    following = [cases[index:] if looks_ahead else [] for index in range(1, len(cases) + 1)]
    return [worker.execute(case, later).verdicts[0] for case, later in zip(cases, following, strict=True)]


@pytest.mark.heavy
def test_change_is_blamed_on_its_case(worker: WorkerProcess) -> None:
    names = [name for trick in TRICKS for name in (trick, "identity", "prints")]
    expected = [reason for _ in TRICKS for reason in (Reason.STATE, Reason.VALUE, None)]
    outcomes = zip(names, verdicts_of(worker, names), expected, strict=True)
    assert [(name, verdict) for name, verdict, reason in outcomes if verdict.reason is not reason] == []


def test_late_phase_write_does_not_blame_finished_case(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    # the parent is slow, and the next case writes over the phase page meanwhile
    look = worker_process._seconds_to_wait

    def looks_late(*arguments: Any) -> float:
        time.sleep(1.0)
        return look(*arguments)

    worker.start()
    monkeypatch.setattr(worker_process, "_seconds_to_wait", looks_late)
    verdicts = verdicts_of(worker, ["prints", "writes and waits"])
    assert [verdict.reason for verdict in verdicts] == [None, Reason.STATE], verdicts


def test_change_is_reported_despite_expected_error(worker: WorkerProcess) -> None:
    refused = replace(relu_of("raises"), expects_error=ExpectedError(type="ValueError"))
    assert worker.execute([refused]).verdicts[0].reason is Reason.STATE


def test_plugin_that_patches_numpy_is_refused(tmp_path: Path) -> None:
    with (
        tricky_worker(tmp_path, "patches_at_load") as executor,
        pytest.raises(UsageError, match=r"patches_at_load.*numpy\.maximum"),
    ):
        executor.start()


def test_failed_reference_is_retried_in_new_worker(worker: WorkerProcess, tmp_path: Path) -> None:
    worker.execute([relu_of("prints")])
    (tmp_path / "spoils").touch()
    verdict = worker.execute([replace(relu_of("right"), reference="tricky_backend:reference")]).verdicts[0]
    assert verdict.status is Status.PASSED, verdict


def test_failing_reference_is_retried_once_per_operator(worker: WorkerProcess, tmp_path: Path) -> None:
    failing = replace(relu_of("right"), reference="tricky_backend:fails")
    outcomes = [worker.execute([case]).verdicts[0].reason for case in (relu_of("prints"), failing, failing, failing)]
    assert outcomes == [None, *[Reason.REFERENCE_FAILED] * 3]
    assert len((tmp_path / "spoils").read_text()) == 4


def test_worker_ended_between_cases_is_replaced(worker: WorkerProcess, tmp_path: Path) -> None:
    assert worker.execute([relu_of("waits for the end")]).verdicts[0].status is Status.PASSED
    assert worker._running is not None
    (tmp_path / "spoils").touch()
    assert worker._running[0].wait(200) == (3, None)
    assert worker.execute([relu_of("prints")]).verdicts[0].status is Status.PASSED


@pytest.mark.parametrize(
    ("deaths", "ends"),
    [(1, False), pytest.param(5, False, marks=pytest.mark.heavy), pytest.param(100, True, marks=pytest.mark.heavy)],
)
def test_worker_killed_during_load_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, ends: bool
) -> None:
    (tmp_path / "dies_at_load.py").write_text(
        f"""
import os, signal
with open({str(tmp_path / "loads")!r}, "a") as file:
    file.write("x")
if os.path.getsize({str(tmp_path / "loads")!r}) <= {deaths}:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with tricky_worker(tmp_path, "dies_at_load") as executor:
        executor.start()
        outcomes: list[Status] = []
        with pytest.raises(UsageError) if ends else nullcontext():
            outcomes += (executor.execute([relu_of("prints")]).verdicts[0].status for _ in range(12))
    crashed = outcomes.count(Status.CRASHED)
    assert outcomes == [Status.CRASHED] * crashed + [Status.PASSED] * (0 if ends else 12 - crashed)
    assert crashed <= 7
    assert (tmp_path / "loads").stat().st_size <= 11


def test_worker_death_before_greeting(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(_: object, **more: Any) -> Child:
        child = start_child([sys.executable, "-c", "raise SystemExit(3)"], **more)
        child.wait(200)
        return child

    monkeypatch.setattr(worker_process, "start_child", dead)
    with refusal(UsageError, "core.exit_status_while_it"):
        worker.execute([relu_of("prints")])


def _patched(case: TestCase, inputs: Any) -> Any:
    np.add = np.subtract  # type: ignore[assignment]
    os.chdir("/")
    signal.setitimer(signal.ITIMER_REAL, 60)
    return [inputs[0] + inputs[1]]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (np, "maximum"),
        (np.linalg, "norm"),
        (math, "sqrt"),
        (ml_dtypes, "bfloat16"),
        (comparison, "compare_outputs"),
        (compare_outputs, "__code__"),
        (Verdict, "status"),
    ],
)
def test_quick_check_restores_names(owner: Any, name: str) -> None:
    watch, before = PatchWatch(), getattr(owner, name)
    assert watch.replaced() == []
    setattr(owner, name, relu_of.__code__ if name == "__code__" else relu_of)
    assert [label.rpartition(".")[2] for label in watch.replaced()] == [name]
    assert getattr(owner, name) is before
    assert watch.replaced(thorough=True) == []


class EqualToAll(dict[str, Any]):  # a dictionary, as `__kwdefaults__` has to be
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("owner", "name", "label"),
    [
        (np, "maximum", "numpy.maximum"),
        (sys.modules["numpy._core.fromnumeric"], "choose", "numpy._core.fromnumeric.choose"),
        (key_of, "__kwdefaults__", "optest.spec.case.key_of.__kwdefaults__"),
    ],
)
def test_replacement_equal_to_all_is_detected(owner: Any, name: str, label: str) -> None:
    watch, before = PatchWatch(), getattr(owner, name)
    setattr(owner, name, EqualToAll())
    try:
        assert watch.replaced(thorough=True) == [label]
        assert getattr(owner, name) is before
    finally:
        setattr(owner, name, before)


def test_watch_keeps_recorded_values_of_later_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = PatchWatch()
    monkeypatch.setitem(sys.modules, "optest.spec.later", ModuleType("optest.spec.later"))
    monkeypatch.setattr(np, "maximum", np.minimum)
    assert watch.replaced() == ["numpy.maximum"]
    later = sys.modules["optest.spec.later"]
    monkeypatch.setattr(later, "__name__", "other")
    assert watch.replaced(thorough=True) == ["optest.spec.later.__name__"]
    monkeypatch.delattr(later, "__spec__")  # None, as a cache that is not filled
    assert watch.replaced(thorough=True) == watch.replaced(thorough=True) == []


def test_renewed_watch_accepts_earlier_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = PatchWatch()
    monkeypatch.setattr(np, "maximum", np.minimum)
    watch.renew()
    assert watch.replaced(thorough=True) == []
    monkeypatch.setattr(np, "maximum", np.add)
    assert watch.replaced() == ["numpy.maximum"]
    assert np.maximum is np.minimum


def test_changes_in_process_are_reverted() -> None:
    driver, add, folder = Answering(_patched), np.add, os.getcwd()
    (verdict,) = InProcess(driver).execute([case_of(backend="answering")]).verdicts
    assert verdict.reason is Reason.STATE
    assert (np.add, os.getcwd(), signal.getitimer(signal.ITIMER_REAL)[0]) == (add, folder, 0)


def test_embedding_api_detects_changes() -> None:
    backend_manager.register(Answering(_patched), replace=True)
    (result,) = TestRunner().run([case_of(backend="answering")])
    assert result.reason is Reason.STATE


@pytest.mark.parametrize("changed", [0, 1, 5])
@pytest.mark.parametrize("looks_ahead", [True, False])
def test_last_check_of_worker_is_thorough(worker: WorkerProcess, changed: int, looks_ahead: bool) -> None:
    # a quick check does not find this change
    names = ["seldom" if index == changed else "prints" for index in range(6)]
    reasons = [verdict.reason for verdict in verdicts_of(worker, names, looks_ahead=looks_ahead)]
    assert (reasons.count(Reason.STATE), reasons.count(None)) == (1, 5)


def test_last_check_of_run_names_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_effects, "_PAUSE_S", 1000.0)

    def patches_third(case: TestCase, inputs: Any) -> Any:
        if case.name == "case 2":
            monkeypatch.setattr(np._core.fromnumeric, "choose", None)
        return [inputs[0] + inputs[1]]

    backend_manager.register(Answering(patches_third), replace=True)
    cases = [replace(case_of(backend="answering"), name=f"case {item}", seed=item) for item in range(5)]
    session, _ = session_of(cases, InProcess(backend_manager.get("answering")))
    session.run()
    for results in (session.results, TestRunner().run(cases)):
        assert [item.reason for item in results] == [None] * 4 + [Reason.STATE]
        assert "3 cases before it" in results[-1].verdict.message
        assert "from case 1 on" in results[-1].verdict.message


def test_changes_between_cases_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend_manager.register(Answering(lambda _, inputs: [inputs[0] + inputs[1]]), replace=True)
    monkeypatch.chdir(tmp_path)
    results = TestRunner().run([case_of(backend="answering")] * 2, lambda *_: os.chdir("/"))
    assert [item.status for item in results] == [Status.PASSED] * 2


def test_frames_lead_to_no_expected_values() -> None:
    reached: list[Any] = []

    def looks(case: TestCase, inputs: Any) -> Any:
        frame: Any = sys._getframe()
        while frame is not None and "pytest" not in frame.f_code.co_filename:
            reached.extend(_arrays_below(list(frame.f_locals.values()), 5, set()))
            frame = frame.f_back
        return [inputs[0] + inputs[1]]

    case = case_of(backend="answering")
    assert InProcess(Answering(looks)).execute([case]).verdicts[0].status is Status.PASSED
    assert reached
    assert not any(array.dtype == np.float64 for array in reached), "the reference's values"


def _arrays_below(value: Any, depth: int, seen: set[int]) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [value]
    if depth == 0 or id(value) in seen or isinstance(value, (str, bytes, int, float, type, threading.Thread)):
        return []
    seen.add(id(value))
    if isinstance(value, dict):
        below = list(value.values())
    elif isinstance(value, (list, tuple)):
        below = list(value)
    else:
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        below = [getattr(value, name, None) for name in names]
    return [array for item in below for array in _arrays_below(item, depth - 1, seen)]


def test_later_imports_are_watched() -> None:
    patches = patch_watch()
    import optest.numerics.rounding as rounding

    patches.renew()
    kept = rounding.round_to
    rounding.round_to = None  # type: ignore[assignment]
    assert patches.replaced(thorough=True) == ["optest.numerics.rounding.round_to"]
    assert rounding.round_to is kept
