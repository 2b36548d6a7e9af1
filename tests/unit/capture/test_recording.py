"""Each different call once: counts, lines, names, which calls are selected, and operators of one's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from texts import says

torch = pytest.importorskip("torch")

from capture_kit import Recorder, call_of, entries_of, recorded  # noqa: E402

pytestmark = pytest.mark.torch


X = torch.rand(2, 3)


def test_equal_calls_become_one_counted_case() -> None:
    def run() -> None:
        for _ in range(3):
            torch.abs(X)
        torch.abs(X[:1])
        torch.abs(X)

    recorder = recorded(run)
    cases = recorder.cases()
    assert [case["name"] for case in cases] == ["abs.1", "getitem.1", "abs.2"]
    assert recorder.calls == 6
    line = run.__code__.co_firstlineno + 2
    said = f"test_recording.py:{line} in run, code: torch.abs(X) (and 1 other line); 4 calls"
    assert cases[0]["description"].endswith(said)
    assert "calls" not in cases[2]["description"]


def test_line_is_in_model_through_torch_modules() -> None:
    layer = torch.nn.Linear(3, 2)

    def forward() -> None:
        layer(X)

    (case,) = recorded(forward).cases()
    assert f":{forward.__code__.co_firstlineno + 1} in forward, code: layer(X)" in case["description"]


def test_one_and_one_point_zero_are_two_cases() -> None:
    assert len(entries_of(lambda: (X * 1, X * 1.0, X * True))) == 3


def test_a_tensor_that_is_given_twice_is_noted() -> None:
    (case,) = recorded(lambda: X * X).cases()
    assert says(case["description"], "capture.the_same_tensor_several")


def under_autocast(function: Callable[[], object], level: str = "torch") -> Recorder:
    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            function()

    return recorded(run, level)


def test_autocast_is_noted() -> None:
    assert "under autocast" in under_autocast(lambda: X @ X.mT).cases()[-1]["description"]


def test_what_only_autocast_makes_legal_is_left_out() -> None:
    """A linear layer behind another one gets bfloat16 and has weights in float32; no case is run under autocast."""
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    recorder = under_autocast(lambda: layers(X))
    assert [case["name"] for case in recorder.cases()] == ["linear.1", "relu.1"]
    ((name, reason),) = recorder.left_out
    assert name == "torch.nn.functional.linear"
    assert "without autocast" in reason
    assert "--level aten" in reason
    aten = under_autocast(lambda: layers(X), "aten")
    assert not aten.left_out
    assert [case["op"] for case in aten.cases()].count("torch.ops.aten.addmm.default") == 2


def test_autocast_of_tensors_without_values_is_seen_too() -> None:
    weight, given = torch.empty(4, 3, device="meta"), torch.empty(2, 3, device="meta")
    recorder = under_autocast(lambda: torch.nn.functional.linear(given, weight))
    assert [case["name"] for case in recorder.cases()] == ["linear.1"]


@pytest.mark.parametrize(
    ("patterns", "ops"),
    [
        (("abs",), ["torch.abs"]),
        (("torch.abs",), ["torch.abs"]),
        (("torch.nn.*",), ["torch.nn.functional.relu"]),
        (("relu", "a*"), ["torch.abs", "torch.nn.functional.relu"]),
        (("Abs",), []),
    ],
)
def test_ops_are_chosen_by_name(patterns: tuple[str, ...], ops: list[str]) -> None:
    recorder = recorded(lambda: (torch.abs(X), torch.nn.functional.relu(X)), ops=patterns)
    assert [case["op"] for case in recorder.cases()] == ops
    assert sum(recorder.not_selected.values()) == 2 - len(ops)


def test_bytes_count_all_tensors_of_call() -> None:
    def run() -> None:
        torch.abs(X)  # 24 bytes
        torch.add(X, X)  # 48
        torch.zeros(3)  # none

    def ops(**asked: int) -> list[str]:
        return [case["op"] for case in recorded(run, **asked).cases()]

    assert ops(min_bytes=24) == ["torch.abs", "torch.add"]
    assert ops(min_bytes=25) == ["torch.add"]
    assert ops(max_bytes=47) == ["torch.abs", "torch.zeros"]
    assert ops(max_bytes=48) == ["torch.abs", "torch.add", "torch.zeros"]


def test_the_dispatcher_names_cases_with_their_overload() -> None:
    assert [case["name"] for case in recorded(lambda: X + 1, "aten").cases()] == ["add.Tensor.1"]


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_what_lay_in_new_memory_is_not_recorded(level: str) -> None:
    def run() -> None:
        for fresh in (torch.empty(3, 5), X.new_empty(3, 5), torch.empty(5, 3, requires_grad=True).T):
            torch.add(torch.ones(3, 5), 1, out=fresh.detach())

    was_asked = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        added = [each for each in entries_of(run, level) if ".add" in each["op"]]
    finally:
        torch.use_deterministic_algorithms(was_asked)
    written = [each["kwmap"]["out"]["tensor"]["init"] for each in added]
    assert written == ["randn"] * len(written)
    assert len(written) == 2


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_a_model_on_meta_may_make_tensors(level: str) -> None:
    """Of values nothing is known there, neither whether they are finite nor that they were drawn."""

    def run() -> None:
        with torch.device("meta"):
            mask = torch.full((3, 3), float("-inf")).triu(1)
            torch.zeros(3, 3) + mask + torch.randn(3, 3) + torch.randint(0, 4, (3,)) + torch.arange(3)

    recorder = recorded(run, level)
    assert [_word(case["op"]) for case in recorder.cases()] == ["full", "triu", "zeros", "add", "add", "arange"]
    drawn = {_word(name) for name, reason in recorder.left_out if reason.startswith("draw random numbers")}
    assert drawn == {"randn", "randint"}


def test_sparse_tensor_of_numbers_is_recorded() -> None:
    recorder = recorded(lambda: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), check_invariants=True))
    assert [case["op"] for case in recorder.cases()] == ["torch.sparse_coo_tensor"]


def _word(op: str) -> str:
    return op.removeprefix("torch.").removeprefix("ops.aten.").removeprefix("Tensor.").partition(".")[0]


# Operators of ``torch.ops`` that a model calls, its own among them, and functions of functions.


def _bump(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


LIBRARY = torch.library.Library("optest_captured", "DEF")
LIBRARY.define("scale(Tensor x, float by) -> Tensor")
LIBRARY.define("bump(Tensor(a!) x, Tensor y) -> ()")
LIBRARY.impl("scale", lambda x, by: x * by, "CPU")
LIBRARY.impl("bump", _bump, "CPU")
scale, bump = torch.ops.optest_captured.scale.default, torch.ops.optest_captured.bump.default

MATRIX, Y = torch.rand(2, 3), torch.rand(2, 3)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: torch.ops.aten.add(MATRIX, Y), "torch.ops.aten.add(2x3, 2x3)"),
        (lambda: torch.ops.aten.add.Tensor(MATRIX, Y), "torch.ops.aten.add.Tensor(2x3, 2x3)"),
        (lambda: torch.ops.optest_captured.scale(MATRIX, 0.5), "torch.ops.optest_captured.scale(2x3, 0.5)"),
        (lambda: scale(MATRIX, 0.5), "torch.ops.optest_captured.scale.default(2x3, 0.5)"),
        (lambda: bump(MATRIX.clone(), Y), "torch.ops.optest_captured.bump.default(2x3, 2x3)"),
    ],
)
def test_operators_have_the_names_of_torch_ops(function: Callable[[], object], text: str) -> None:
    inner = [entry for entry in entries_of(function) if entry["op"] not in ("torch.Tensor.clone", "torch.clone")]
    assert [entry["op"] for entry in inner] == [text.partition("(")[0]]
    if "bump" not in text:
        assert call_of(function) == text


def test_mutating_call_without_result_is_a_case() -> None:
    several = [torch.rand(2), torch.rand(3)]
    assert call_of(lambda: torch._foreach_add_(several, 1.0)) == "torch._foreach_add_([2, 3], 1.0)"


def test_user_operator_names_its_cases() -> None:
    (case,) = recorded(lambda: scale(MATRIX, 0.5)).cases()
    assert case["name"] == "optest_captured.scale.default.1"


@pytest.mark.parametrize("pattern", ["scale", "torch.ops.optest_captured.*"])
def test_an_operator_is_asked_for_by_its_name(pattern: str) -> None:
    assert len(entries_of(lambda: (scale(MATRIX, 0.5), torch.ops.aten.add(MATRIX, Y)), ops=(pattern,))) == 1


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_same_of_the_dispatcher() -> None:
    """What it is asked for first takes torch some seconds."""
    ops = [entry["op"] for entry in entries_of(lambda: bump(torch.rand(2), torch.ones(2)), "aten")]
    assert "torch.ops.optest_captured.bump.default" in ops
    assert len(entries_of(lambda: (scale(MATRIX, 0.5), torch.add(MATRIX, Y)), "aten", ops=("add",))) == 1
    found = recorded(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "aten")
    assert any("nested" in reason for _, reason in found.left_out)


@pytest.mark.heavy
@pytest.mark.parametrize("level", ["torch", "aten"])
def test_higher_order_call_does_not_stop_capture(level: str) -> None:
    found = recorded(lambda: torch.cond(MATRIX.sum() > 0, lambda t: t + 1, lambda t: t - 1, (MATRIX,)), level)
    assert any(case["op"].endswith(("sum", "sum.default")) for case in found.cases())
