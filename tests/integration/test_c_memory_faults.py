"""What a C function does to memory, to the process and between calls is found, each with its reason; no false alarms.

One library has all the faults; which one it makes is a variable of it, so most cases run in this process.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ffi_plans import ffi_case as case
from ffi_plans import library_of, run_ffi_plan
from texts import says

from optest.clib.library.driver import FfiBackend
from optest.clib.probing import case_probe
from optest.core.runner import execute
from optest.operators import operators
from optest.process.state import count_resources
from optest.registry import load_object
from optest.spec import (
    Argument,
    CaseResult,
    CheckState,
    ExpectedError,
    Fill,
    Reason,
    Status,
    TensorSpec,
    TestCase,
    Verdict,
    dtype,
)

pytestmark = [
    pytest.mark.cxx,
]

DRIVER = FfiBackend()

SOURCE = Path(__file__).parent / "memory_faults" / "faulty_tanh.c"
FAULTS = re.search(r"enum \{\s*(RIGHT,.*?),\s*\}", SOURCE.read_text(), re.DOTALL)[1].lower().replace(",", " ").split()
"""In the order of the C enumeration, which begins at 0."""


@pytest.fixture(scope="module")
def objects(c_library: Path) -> list[str]:
    """The faulty function in front of the right library, and that library."""
    shim = str(c_library / "libshim.so")
    command = ["gcc", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", shim, str(SOURCE), "-pthread", "-lm"]
    subprocess.run(command, check=True, timeout=600)
    return [shim, *(str(c_library / "lib" / f"lib{name}.so") for name in ("infiniop", "infinirt"))]


@pytest.fixture
def fault(objects: list[str]) -> Iterator[Any]:
    """Sets which fault the library makes."""
    library = ctypes.CDLL(objects[0])
    chosen = ctypes.c_int.in_dll(library, "fault")
    greeted = ctypes.c_int.in_dll(library, "greeted")
    written = ctypes.c_void_p.in_dll(library, "written")

    def choose(name: str) -> None:
        chosen.value, greeted.value, written.value = FAULTS.index(name), 0, None

    is_over = ctypes.c_int.in_dll(library, "is_over")
    is_over.value = 0
    threads = count_resources()["threads"]
    yield choose
    chosen.value, is_over.value = 0, 1
    ends = time.monotonic() + 60  # a thread of somebody else may stay
    while count_resources()["threads"] > threads and time.monotonic() < ends:
        time.sleep(0.001)


def asked(
    op: str, *shapes: tuple[int, ...], objects: list[str], dtype_name: str = "float32", **config: Any
) -> TestCase:
    descriptor = operators.get(op)
    specs = [TensorSpec(dtype=dtype(dtype_name), shape=shape) for shape in shapes]
    names = [each.name for each in descriptor.tensors.inputs]
    inputs = tuple(
        Argument(name=name, path=f"input{index}", spec=spec, fill=Fill(kind="randn"))
        for index, (name, spec) in enumerate(zip(names, specs, strict=False))
    )
    attributes = descriptor.bind({})
    infer = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
    assert infer is not None
    missing: tuple[None, ...] = (None,) * (len(names) - len(specs))
    outputs = tuple(infer((*specs, *missing), attributes))
    place = {"library": objects, "headers": str(Path(objects[0]).parent / "include"), "mapping": "infiniop"}
    refused = bool(set(config.get("call", {})) - {"in_place"})
    return TestCase(
        descriptor=descriptor,
        inputs=inputs,
        outputs=outputs,
        attributes=attributes,
        backend_config={"ffi": {**place, **config}},
        expects_error=ExpectedError(type="StatusError") if refused else None,
    )


SEEDS = itertools.count(100)


def verdict(objects: list[str], **config: Any) -> Verdict:
    """Of one more case with other values, as the cases of a run have."""
    return execute([replace(asked("tanh", (4, 5), objects=objects, **config), seed=next(SEEDS))], DRIVER).verdicts[0]


def checks(of: Verdict) -> dict[str, CheckState]:
    return {check.name: check.state for check in of.checks}


@pytest.mark.parametrize("guard", [None, "heap", "pages"])
def test_correct_function_passes_every_check(objects: list[str], fault: Any, guard: str | None) -> None:
    fault("right")
    config = {} if guard is None else {"guard": guard}
    found = verdict(objects, threads=[1, 2, 7], **config)
    assert (found.status, found.message) == (Status.PASSED, "")
    done = checks(found)
    assert done == dict.fromkeys(done, CheckState.DONE)
    assert done.keys() >= {
        *("inputs unchanged", "outputs written", "guard zones", "nothing else read", "workspace", "state"),
        *("same bits at every address of the tensors", "threads", "leaks", "floating-point mode", "standard output"),
    }


REASONS = {
    "writes_behind": (Reason.OUT_OF_BOUNDS, "behind the end of output out"),
    "writes_far_behind": (Reason.OUT_OF_BOUNDS, "80 bytes behind the end of output out"),
    "aligns_down": (Reason.READ_OUT_OF_BOUNDS, "outside the elements of the inputs"),
    "reads_output": (Reason.UNWRITTEN, "the content of the outputs before"),
    "remembers_address": (Reason.STATE, "the calls before it"),
    "rounds_upward": (Reason.STATE, "rounding upward"),
    "flushes_to_zero": (Reason.STATE, "flush-to-zero and denormals-are-zero"),
    "unmasks_traps": (Reason.STATE, "floating-point traps"),
    "prints": (Reason.STATE, "'tanh: done"),
    "leaks": (Reason.LEAK, "each call loses 1000"),
    "writes_late": (Reason.UNWRITTEN, "output out was written after the call had returned"),
    "reads_fresh_heap": (Reason.STATE, "[0, 2] of output out depends on the content of fresh or freed heap memory"),
    "wrong_by_alignment": (Reason.VALUE, "with the tensors at other addresses: out: 1 of 20 elements is off"),
}


FACTS = {"prints": ["printed"], "rounds_upward": ["float_mode"]}
"""What tells whoever reads the failure what to try."""


@pytest.mark.parametrize("name", REASONS)
def test_a_fault_has_its_reason(objects: list[str], fault: Any, name: str) -> None:
    reason, words = REASONS[name]
    fault(name)
    found = verdict(objects)
    assert (found.status, found.reason) == (Status.FAILED, reason), found.message
    assert words in found.message
    assert set(FACTS.get(name, ())) <= found.details.keys()
    fault("right")
    assert verdict(objects).status is Status.PASSED


@pytest.fixture
def calls(objects: list[str]) -> Any:
    """How often the function was called, since the library was loaded."""
    return ctypes.c_int.in_dll(ctypes.CDLL(objects[0]), "calls")


def test_between_guards_a_case_is_called_once(objects: list[str], fault: Any, calls: Any) -> None:
    fault("right")
    before = calls.value
    found = verdict(objects, probes="guards")
    assert found.status is Status.PASSED, found.message
    assert calls.value == before + 1
    states = checks(found)
    assert states["guard zones"] is states["outputs written"] is states["floating-point mode"] is CheckState.DONE
    not_asked = {check.name for check in found.checks if check.detail == "not run because of probes: guards"}
    assert not_asked == {"nothing else read", "workspace", "state", "same bits in a second call", "leaks"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("writes_behind", Reason.OUT_OF_BOUNDS),
        ("rounds_upward", Reason.STATE),
        ("prints", Reason.STATE),
        ("remembers_address", Reason.STATE),
        ("writes_late", Reason.UNWRITTEN),
    ],
)
def test_guards_only_visible_fault_has_its_reason(
    objects: list[str], fault: Any, calls: Any, name: str, reason: Reason
) -> None:
    """An answer that leaves the rule is asked for again, under all circumstances."""
    fault("right")
    verdict(objects, probes="guards", guard="heap")
    fault(name)
    before = calls.value
    found = verdict(objects, probes="guards", guard="heap")
    assert (found.status, found.reason) == (Status.FAILED, reason), found.message
    if name == "remembers_address":
        assert calls.value > before + 3


def test_guards_only_single_print_is_a_note(objects: list[str], fault: Any) -> None:
    fault("prints_once")
    found = verdict(objects, probes="guards")
    assert found.status is Status.PASSED, found.message
    assert checks(found)["standard output"] is CheckState.NOTE


def test_hidden_leak_is_found_by_counting(objects: list[str], fault: Any) -> None:
    """Of a few small pieces the heap does not grow; in one of sixteen cases more calls are made to see."""
    fault("leaks_little")
    seeded = [replace(asked("tanh", (4, 5), objects=objects), seed=seed) for seed in range(3)]
    assert [each.key[-1] == "0" for each in seeded] == [False, False, True]
    found = execute([seeded[2]], DRIVER).verdicts[0]
    assert found.reason is Reason.LEAK
    assert found.message.startswith("each call loses ")


@pytest.mark.parametrize(
    ("name", "what"),
    [pytest.param("leaves_files_open", "open files", marks=pytest.mark.heavy), ("leaves_threads", "threads")],
)
def test_remaining_files_and_threads_are_a_leak(objects: list[str], fault: Any, name: str, what: str) -> None:
    fault("right")
    count_resources = replace(asked("tanh", (4, 5), objects=objects), seed=2)
    assert execute([count_resources], DRIVER).verdicts[0].status is Status.PASSED
    fault(name)
    found = execute([count_resources], DRIVER).verdicts[0]
    assert found.reason is Reason.LEAK, found.message
    assert found.message.endswith(f"left {found.details[what]} {what}")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("changes_folder", "the working directory: "),
        pytest.param("closes_output", "standard output: it was closed", marks=pytest.mark.heavy),
        pytest.param("blocks_signals", "the thread's signal mask: it blocks SIGHUP, ", marks=pytest.mark.heavy),
    ],
)
def test_changed_process_state_is_a_fault(objects: list[str], fault: Any, name: str, what: str) -> None:
    fault(name)
    folder = Path.cwd()
    count_resources = replace(asked("tanh", (4, 5), objects=objects), seed=2)
    found = execute([count_resources], DRIVER).verdicts[0]
    assert found.reason is Reason.STATE, found.message
    assert found.details["process"][0].startswith(what)
    assert Path.cwd() == folder


def test_a_new_variable_is_a_note(objects: list[str], fault: Any) -> None:
    fault("adds_variable")
    count_resources = replace(asked("tanh", (4, 5), objects=objects), seed=2)
    found = execute([count_resources], DRIVER).verdicts[0]
    ctypes.CDLL(None).unsetenv(b"TANH_WAS_HERE")
    assert found.status is Status.PASSED, found.message
    notes = [check.detail for check in found.checks if check.state is CheckState.NOTE]
    assert notes == ["the environment: TANH_WAS_HERE is new"]


BY_WHEN, BY_COUNT = "in the first call of all", "of 300 equal calls"
"""What a few cases are told of calls that are wrong now and then."""


@pytest.mark.parametrize(
    "name",
    [
        "wrong_now_and_then",
        *(pytest.param(each, marks=pytest.mark.heavy) for each in ("wrong_in_second_call", "wrong_in_fifth_call")),
    ],
)
def test_occasional_wrong_output_is_detected(objects: list[str], fault: Any, name: str) -> None:
    """Whichever of several calls it is, and though the first answer may be right."""
    fault(name)
    found = [verdict(objects) for _ in range(12)]
    reasons = {each.reason for each in found if each.status is Status.FAILED}
    of_calls = {Reason.STATE for each in found if each.message.startswith(BY_WHEN) or BY_COUNT in each.message}
    assert reasons <= {Reason.NONDETERMINISTIC, Reason.VALUE} | of_calls
    assert len([each for each in found if each.status is Status.FAILED]) >= 2


@pytest.mark.parametrize("name", ["caches_once", "prints_once"])
def test_what_happens_once_is_no_failure(objects: list[str], fault: Any, name: str) -> None:
    fault(name)
    found = [verdict(objects) for _ in range(3)]
    assert [each.status for each in found] == [Status.PASSED] * 3
    noted = [check.detail for each in found for check in each.checks if check.state is CheckState.NOTE]
    assert noted == (["printed: welcome"] if name == "prints_once" else [])


@pytest.mark.parametrize(
    ("name", "config"), [("one_ulp_by_alignment", {}), ("one_ulp_by_threads", {"threads": [1, 7]})]
)
def test_other_bits_fail_only_invariant_library(
    objects: list[str], fault: Any, name: str, config: dict[str, Any]
) -> None:
    fault(name)
    found = verdict(objects, **config)
    assert found.status is Status.PASSED, found.message
    notes = [check for check in found.checks if check.state is CheckState.NOTE]
    assert len(notes) == 1
    assert says(notes[0].detail, "integration.all_answers_were_compared")
    strict = verdict(objects, invariant=True, **config)
    assert strict.reason is Reason.NONDETERMINISTIC
    assert "declared invariant" in strict.message


def test_wrong_output_with_more_threads_fails(objects: list[str], fault: Any) -> None:
    fault("wrong_by_threads")
    assert verdict(objects, threads=[1, 2]).status is Status.PASSED
    found = verdict(objects, threads=[1, 7])
    assert found.reason is Reason.VALUE
    assert found.message.startswith("with 7 threads: out: 1 of 20 elements is off")
    assert found.details["how"] == "with 7 threads"


def answer(folder: Path, cases: list[dict[str, Any]], **config: Any) -> list[CaseResult]:
    """The cases through a worker, as a user would run them."""
    return list(run_ffi_plan(folder, cases, **{"mapping": "infiniop", **config}).results)


@pytest.mark.parametrize(
    ("name", "config", "reason", "words"),
    [
        (
            "reads_behind",
            {},
            Reason.READ_OUT_OF_BOUNDS,
            "memory was read 2 bytes behind the end of input input (float32[4x5]), 1 element behind the last",
        ),
        (
            "writes_far_behind",
            {"guard": "pages"},
            Reason.OUT_OF_BOUNDS,
            "memory was written 80 bytes behind the end of output out (float32[4x5]), 21 elements behind the last",
        ),
        (
            "reads_before",  # which crashes where the tensor begins with a page, when it is looked at closer
            {"probes": "guards"},
            Reason.READ_OUT_OF_BOUNDS,
            "memory was read 4 bytes before the start of input input (float32[4x5]), 1 element before the first",
        ),
        ("aborts", {}, Reason.SIGNAL, "SIGABRT"),
        pytest.param("divides_by_zero", {}, Reason.SIGNAL, "SIGFPE", marks=pytest.mark.heavy),
    ],
)
def test_a_crash_says_what_it_touched(
    objects: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    config: dict[str, Any],
    reason: Reason,
    words: str,
) -> None:
    monkeypatch.setenv("SHIM_FAULT", str(FAULTS.index(name)))
    place = {"library": objects, "headers": str(Path(objects[0]).parent / "include")}
    crashed, other = answer(tmp_path, [case("tanh", [4, 5]), case("relu", [4, 5])], **place, **config)
    assert (crashed.status, crashed.reason) == (Status.CRASHED, reason), crashed.verdict.message
    assert words in crashed.verdict.message
    assert other.status is Status.PASSED, "a crash ends its case alone"


@pytest.mark.heavy
def test_first_call_wrong_by_address_names_address(
    objects: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call of all finds its tensors elsewhere than the second, and another one finds them there, too."""
    monkeypatch.setenv("SHIM_FAULT", str(FAULTS.index("wrong_by_alignment")))
    place = {"library": objects, "headers": str(Path(objects[0]).parent / "include")}
    (found,) = answer(tmp_path, [case("tanh", [4, 5])], **place)
    assert found.reason is Reason.VALUE, found.verdict.message
    assert found.verdict.message.startswith("with the tensors at other addresses: out: 1 of 20 elements is off")


@pytest.mark.heavy
def test_a_large_input_may_be_read_alone(tmp_path: Path) -> None:
    """There a write is a crash at its element; comparing 32 MiB with what they were would take longer than the call."""
    source = """
    #include <stddef.h>
    void f(size_t n, float *x, float *y) {
        for (size_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;
        x[n / 2] = 1;
    }
    """
    place = library_of(tmp_path, "relu", source)
    small, large = answer(tmp_path, [case("relu", [4096]), case("relu", [1 << 23])], **place)
    assert (small.status, small.reason) == (Status.FAILED, Reason.INPUT_MUTATED), small.verdict.message
    assert says(small.verdict.message, "integration.element_of_input_input")
    assert (large.status, large.reason) == (Status.CRASHED, Reason.INPUT_MUTATED), large.verdict.message
    assert says(large.verdict.message, "integration.memory_was_written_at")


@pytest.mark.heavy
@pytest.mark.parametrize("alignment", [1, 64])
def test_mapping_alignment_places_pointers(tmp_path: Path, alignment: int) -> None:
    source = """
    #include <stddef.h>
    #include <stdint.h>
    void f(size_t n, const float *x, float *y) {
        if (((uintptr_t)x | (uintptr_t)y) % 64) __builtin_trap();
        for (size_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;
    }
    """
    place = library_of(tmp_path, "relu", source, alignment=alignment)
    results = answer(tmp_path, [case("relu", [37]), case("relu", [(1 << 22) + 5])], **place)
    assert [each.status for each in results] == [Status.PASSED if alignment == 64 else Status.CRASHED] * 2
    if alignment == 64:
        assert all(checks(each.verdict)["other alignments"] is CheckState.NOT_POSSIBLE for each in results)


REFUSED: list[dict[str, Any]] = [
    {"null": ["input:input"]},
    {"null": ["output:out"]},
    {"null": ["descriptor"]},
    {"null": ["handle"]},
    {"null_descriptor": ["input:input"]},
    {"alias": {"output:out": "input:input"}},
    {"dtypes": {"output:out": "float16"}},
    {"shapes": {"output:out": [4, 6]}},
]


@pytest.mark.parametrize(
    "call", [*REFUSED[:2], *(pytest.param(each, marks=pytest.mark.heavy) for each in REFUSED[2:])], ids=str
)
def test_a_wrong_call_that_is_refused_passes(objects: list[str], call: dict[str, Any]) -> None:
    found = execute([asked("relu", (4, 5), objects=objects, call=call)], DRIVER).verdicts[0]
    assert found.status is Status.PASSED, found.message
    assert found.message.startswith("refused: StatusError")


def test_accepted_wrong_call_is_not_refused(objects: list[str]) -> None:
    """The library lets an output be its input, and is told that it should not."""
    case_in_place = asked("relu", (4, 5), objects=objects, call={"in_place": {"output:out": "input:input"}})
    refused = replace(case_in_place, expects_error=ExpectedError(type="StatusError"))
    assert execute([refused], DRIVER).verdicts[0].reason is Reason.NOT_REFUSED


def test_a_short_workspace_is_one_byte_too_short(objects: list[str]) -> None:
    found = execute([asked("softmax", (4, 5), objects=objects, call={"workspace": "short"})], DRIVER).verdicts[0]
    assert found.message.startswith("refused: StatusError: infiniopSoftmax returned 13"), found.message


def test_in_place_call_uses_original_input_values(objects: list[str], fault: Any) -> None:
    fault("right")
    in_place = {"in_place": {"output:out": "input:input"}}
    assert verdict(objects, call=in_place).status is Status.PASSED
    fault("remembers_address")
    assert verdict(objects, call=in_place).reason is Reason.STATE


def test_calls_are_repeated_at_any_load(objects: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_REPEATS_S", "_MIN_REPEATS_S", "_CONCURRENT_S"):
        monkeypatch.setattr(case_probe, limit, 0.0)
    found = execute([asked("relu", (64, 65), objects=objects)], DRIVER).verdicts[0]
    details = {check.name: check.detail for check in found.checks}
    assert (details["races"], details["callers at once"]) == ("3 more calls", "3 calls while another thread called")


def test_races_show_in_one_of_many_calls(tmp_path: Path) -> None:
    """Two threads and one buffer, which both fill before they read it in every fifth call, at any load."""
    source = """
    #define _GNU_SOURCE
    #include <math.h>
    #include <pthread.h>
    #include <stddef.h>
    enum { N = 65536 };
    static volatile float shared[64];
    static pthread_barrier_t filled;
    static int calls;
    static float *out;
    static const float *in;
    static void *half(void *which) {
        const int begin = which ? N / 2 : 0;
        for (int block = begin; block < begin + N / 2; block += 64) {
            for (int i = 0; i < 64; ++i) shared[i] = tanhf(in[block + i]);
            if (calls % 5 == 0 && block == begin) pthread_barrier_wait(&filled);
            for (int i = 0; i < 64; ++i) out[block + i] = shared[i];
        }
        return NULL;
    }
    void f(size_t n, const float *x, float *y) {
        pthread_t other;
        (void)n, in = x, out = y;
        if (calls++ == 0) pthread_barrier_init(&filled, NULL, 2);
        pthread_create(&other, NULL, half, &other);
        if (calls % 5) pthread_join(other, NULL);
        half(NULL);
        if (calls % 5 == 0) pthread_join(other, NULL);
    }
    """
    (result,) = answer(tmp_path, [case("tanh", [65536])], **library_of(tmp_path, "tanh", source))
    assert result.reason is Reason.NONDETERMINISTIC, result.verdict.message


@pytest.mark.heavy
def test_a_report_of_a_sanitizer_is_the_reason(objects: list[str], tmp_path: Path) -> None:
    source = """
    #include <stddef.h>
    #include <stdlib.h>
    int infiniopRelu(void *d, void *w, size_t n, float *y, const float *x, void *s) {
        volatile float *kept = malloc(16);
        y[0] = kept[n + 4];
        return 0;
    }
    int infiniopSilu(void *d, void *w, size_t n, void *y, const void *x, void *s) {
        volatile int large = 0x7fffffff;
        large = large + 1;
        return 0;
    }
    """
    (tmp_path / "bad.c").write_text(source)
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-sanitize=object-size"]
    command = ["gcc", "-g", "-O1", "-shared", "-fPIC", *flags, "-o", "libbad.so", "bad.c"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=600).returncode != 0:
        pytest.skip("gcc has no sanitizers here")
    place = {
        "library": [str(tmp_path / "libbad.so"), *objects[1:]],
        "headers": str(Path(objects[0]).parent / "include"),
    }
    cases = [case("relu", [4, 5]), case("silu", [4, 5]), case("add", [4, 5], [4, 5])]
    relu, silu, add = answer(tmp_path, cases, **place, sanitizer="asan")
    assert (relu.status, relu.reason) == (Status.CRASHED, Reason.SANITIZER), relu.verdict.message
    assert "heap-buffer-overflow" in relu.verdict.message or "runtime error: load of" in relu.verdict.message
    assert "in infiniopRelu" in relu.verdict.message
    assert silu.reason is Reason.SANITIZER
    assert "signed integer overflow" in silu.verdict.message
    assert add.status is Status.PASSED, add.verdict.message
    (unasked,) = answer(tmp_path, cases[:1], **place)
    assert unasked.reason is Reason.UNAVAILABLE
    assert "set `sanitizer: asan`" in unasked.verdict.message
