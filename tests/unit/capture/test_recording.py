"""Each different call once: counts, lines, names, and which calls are wanted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from capture_kit import entries_of, recorded  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.rand(2, 3)


def test_equal_calls_are_one_case_with_their_count_and_line() -> None:
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


def test_the_line_is_the_models_also_through_modules_of_torch() -> None:
    layer = torch.nn.Linear(3, 2)

    def forward() -> None:
        layer(X)

    (case,) = recorded(forward).cases()
    assert f":{forward.__code__.co_firstlineno + 1} in forward, code: layer(X)" in case["description"]


def test_one_and_one_point_zero_are_two_cases() -> None:
    assert len(entries_of(lambda: (X * 1, X * 1.0, X * True))) == 3


def test_a_tensor_that_is_given_twice_is_noted() -> None:
    (case,) = recorded(lambda: X * X).cases()
    assert "the same tensor several times" in case["description"]


def test_autocast_is_noted() -> None:
    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            X @ X.mT

    assert "under autocast" in recorded(run).cases()[-1]["description"]


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
    assert sum(recorder.not_asked.values()) == 2 - len(ops)


def test_bytes_are_those_of_all_tensors_of_a_call() -> None:
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
