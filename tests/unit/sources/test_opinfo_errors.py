"""OpInfo's error inputs as cases: selection, and that only the expected error passes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from texts import says_exactly

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from optest.api import cases  # noqa: E402
from optest.core.expected import make_inputs  # noqa: E402
from optest.core.runner import execute  # noqa: E402
from optest.core.wire import case_from_wire, case_to_wire  # noqa: E402
from optest.operators import operators  # noqa: E402
from optest.plan.sources import SourceRequest  # noqa: E402
from optest.spec import Evidence, Fault, Reason, Status, TestCase, Verdict  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402
from optest.torch.opinfo.fill import array_of, database, errors_of, tensors_of  # noqa: E402
from optest.torch.opinfo.source import collect, error_entries  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.torch]


def entries(name: str, *dtypes: str) -> list[dict[str, Any]]:
    return error_entries(name, database()[name], ("float32",), SourceRequest(names=(name,), dtypes=dtypes))


def error_cases(name: str) -> list[TestCase]:
    return [case for case in cases(source=f"opinfo:{name}") if "error" in case.tags]


def verdict_of(case: TestCase) -> Verdict:
    return execute([case], TorchBackend()).verdicts[0]


def test_error_input_names_are_unique_and_stable() -> None:
    names = [entry["name"] for entry in entries("gather")]
    assert names == [
        f"opinfo::gather::{str(tensors_of(error.sample_input)[0].dtype).removeprefix('torch.')}::error{number}"
        for number, error in enumerate(errors_of("gather", 0))
    ]
    assert len(names) > 5
    assert [entry["name"] for entry in entries("gather", "float32")] == [
        name for name in names if "::float32::" in name
    ]


def test_error_inputs_follow_samples_with_tag() -> None:
    found = collect(SourceRequest(names=("gather",), dtypes=("float32",))).entries
    kinds = [entry["tags"][2] for entry in found]
    assert kinds.index("error") == len(kinds) - kinds.count("error")
    assert kinds.count("error") == len(entries("gather", "float32"))


def test_expected_error_is_that_of_opinfo() -> None:
    for error, entry in zip(errors_of("cat", 0), entries("cat"), strict=True):
        if "skip" not in entry:
            assert entry["expects_error"] == {"type": error.error_type.__name__, "pattern": error.error_regex}


def test_error_without_text_expects_only_type() -> None:
    found = entries("atan2")
    assert [entry["expects_error"] for entry in found] == [{"type": "Exception"}] * len(found) != []


def test_errors_of_mistakes_are_expected_by_type() -> None:
    # ``1 / tensor`` of two numbers ends in an AttributeError.
    assert {entry["expects_error"]["type"] for entry in entries("__rdiv__")} == {"AttributeError"}


def test_call_without_tensor_counts_as_float32() -> None:
    names = [entry["name"] for entry in entries("atan2") if "shapes" not in entry]
    assert names
    assert all("::float32::" in name for name in names)
    assert not [entry for entry in entries("atan2", "float64") if "shapes" not in entry]


def test_raising_call_of_wrapper_is_recorded() -> None:
    (first, *_) = entries("nn.functional.embedding")
    assert first["attributes"]["call"].startswith("torch.nn.functional.embedding(input1, input0, ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("clamp_max", "OpInfo expects an error, but torch on the CPU accepts the call"),
        ("gather", "two of its tensors share memory"),
        ("amax", "a tensor has 65 dimensions, more than NumPy holds"),
        ("gradient", "a tensor is on meta"),
        ("jiterator_unary", "it runs only on CUDA, from source code"),
    ],
)
def test_unusable_error_input_is_skipped_with_reason(name: str, reason: str) -> None:
    assert reason in {entry.get("skip") for entry in entries(name)}


@pytest.mark.parametrize(("kind", "pattern"), [(IndexError, ""), (RuntimeError, "never said")])
def test_other_error_than_opinfo_expects_is_skipped(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], pattern: str
) -> None:
    (first, *_) = errors_of("cat", 0)
    wrong = SimpleNamespace(sample_input=first.sample_input, error_type=kind, error_regex=pattern)
    monkeypatch.setattr("optest.torch.opinfo.source.errors_of", lambda *_: (wrong,))
    (only,) = entries("cat")
    assert only["skip"].startswith("torch on the CPU raises 'RuntimeError: ")
    expected = f"{kind.__name__}{f' with a text that matches {pattern!r}' if pattern else ''}"
    assert only["skip"].endswith(f"but OpInfo expects {expected}")


def test_operator_without_error_inputs_has_no_entries() -> None:
    assert entries("exp") == []


def test_failure_to_build_error_inputs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no such device")

    monkeypatch.setattr("optest.torch.opinfo.source.errors_of", fails)
    (only,) = entries("cat")
    assert says_exactly(only["skip"], "sources.its_error_inputs_cannot")


@pytest.mark.parametrize(
    "name", ["cat", "gather", "nn.functional.embedding", "multinomial", "__rdiv__", "linalg.lstsq"]
)
def test_torch_raises_expected_errors(name: str) -> None:
    found = [case for case in error_cases(name) if case.skip is None]
    verdicts = {case.id: verdict_of(case) for case in found}
    assert {entry.message for entry in verdicts.values() if entry.status is not Status.PASSED} == set()
    assert {entry.evidence for entry in verdicts.values()} == {Evidence.RAISED_AS_EXPECTED}


def test_worker_rebuilds_same_values() -> None:
    for case in error_cases("gather"):
        if case.skip is None:
            again = case_from_wire(case_to_wire(case), operators.get)
            assert again == case
            number = int(case.name.rpartition("error")[2])
            tensors = tensors_of(errors_of("gather", 0)[number].sample_input)
            for array, tensor in zip(make_inputs(again)[0], tensors, strict=True):
                assert array.tobytes() == array_of(tensor).tobytes()


@pytest.mark.heavy
def test_uninitialised_memory_is_reproducible() -> None:
    # Some error inputs of multinomial are created by torch.empty.
    program = (
        "import json, torch\n"
        "kept = [torch.rand(size) for size in range(1, 500)]\n"
        "del kept\n"
        "from optest.plan.sources import SourceRequest\n"
        "from optest.torch.opinfo.source import error_entries\n"
        "from optest.torch.opinfo.fill import database\n"
        "request = SourceRequest(names=('multinomial',))\n"
        "print(json.dumps(error_entries('multinomial', database()['multinomial'], ('float32',), request)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert json.loads(ended.stdout) == json.loads(json.dumps(entries("multinomial")))
    assert not torch.are_deterministic_algorithms_enabled()


class Backend(TorchBackend):
    """Torch backend that raises ``error`` instead of torch's errors, or returns its input if that is None."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self._error = error

    def run(self, case: TestCase, inputs: Any) -> Any:
        try:
            return super().run(case, inputs)
        except Fault:
            raise
        except RuntimeError:
            if self._error is None:
                return [inputs[0]]
            raise self._error from None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, Reason.NOT_REFUSED),
        (RuntimeError("something else"), Reason.WRONG_ERROR),
        (KeyError("Sizes of tensors must match except in dimension"), Reason.WRONG_ERROR),
    ],
)
def test_missing_or_wrong_error_fails(error: Exception | None, reason: Reason) -> None:
    (case, *_) = [
        entry for entry in error_cases("cat") if entry.expects_error and "Sizes of" in entry.expects_error.pattern
    ]
    verdict = execute([case], Backend(error)).verdicts[0]
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason)


def test_error_for_valid_call_fails() -> None:
    (case, *_) = [entry for entry in error_cases("cat") if entry.skip is None]
    legal = dataclasses.replace(case, attributes={"call": "torch.cat((input0,))"})
    verdict = execute([legal], Backend(RuntimeError("refused"))).verdicts[0]
    assert verdict.reason is Reason.NOT_REFUSED
