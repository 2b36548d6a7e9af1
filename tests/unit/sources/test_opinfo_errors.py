"""What OpInfo says that an operator refuses: which cases it makes, and that only a refusal of that kind passes."""

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
from optest.core.inputs import make_inputs  # noqa: E402
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


def asked(name: str) -> list[TestCase]:
    return [case for case in cases(source=f"opinfo:{name}") if "error" in case.tags]


def verdict_of(case: TestCase) -> Verdict:
    return execute([case], TorchBackend()).verdicts[0]


def test_each_error_input_has_a_name_of_its_own_that_stays() -> None:
    names = [each["name"] for each in entries("gather")]
    assert names == [
        f"opinfo::gather::{str(tensors_of(error.sample_input)[0].dtype).removeprefix('torch.')}::error{number}"
        for number, error in enumerate(errors_of("gather", 0))
    ]
    assert len(names) > 5
    assert [each["name"] for each in entries("gather", "float32")] == [name for name in names if "::float32::" in name]


def test_they_stand_behind_the_samples_and_have_a_tag() -> None:
    found = collect(SourceRequest(names=("gather",), dtypes=("float32",))).entries
    kinds = [each["tags"][2] for each in found]
    assert kinds.index("error") == len(kinds) - kinds.count("error")
    assert kinds.count("error") == len(entries("gather", "float32"))


def test_type_and_regular_expression_are_those_of_opinfo() -> None:
    for error, entry in zip(errors_of("cat", 0), entries("cat"), strict=True):
        if "skip" not in entry:
            assert entry["expects_error"] == {"type": error.error_type.__name__, "pattern": error.error_regex}


def test_without_a_text_the_type_alone_is_asked_for() -> None:
    stated = [each["expects_error"] for each in entries("atan2")]
    assert stated == [{"type": "Exception"}] * len(stated)
    assert stated


def test_what_code_raises_by_a_slip_is_asked_for_by_its_name() -> None:
    """``1 / tensor`` of two numbers ends in an AttributeError, which is no refusal anywhere else."""
    assert {each["expects_error"]["type"] for each in entries("__rdiv__")} == {"AttributeError"}


def test_a_call_without_a_tensor_goes_with_float32() -> None:
    names = [each["name"] for each in entries("atan2") if "shapes" not in each]
    assert names
    assert all("::float32::" in name for name in names)
    assert not [each for each in entries("atan2", "float64") if "shapes" not in each]


def test_the_call_of_a_wrapper_is_seen_though_it_raises() -> None:
    (first, *_) = entries("nn.functional.embedding")
    assert first["attributes"]["call"].startswith("torch.nn.functional.embedding(input1, input0, ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("clamp_max", "OpInfo says that it is refused, but torch on the CPU takes it"),
        ("gather", "two of its tensors share memory"),
        ("amax", "a tensor has 65 dimensions, more than NumPy holds"),
        ("gradient", "a tensor is on meta"),
        ("jiterator_unary", "it runs on CUDA alone, from source code"),
    ],
)
def test_what_no_case_can_say_is_left_out_with_the_reason(name: str, reason: str) -> None:
    assert reason in {each.get("skip") for each in entries(name)}


@pytest.mark.parametrize(("kind", "pattern"), [(IndexError, ""), (RuntimeError, "never said")])
def test_where_torch_and_opinfo_are_at_odds_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], pattern: str
) -> None:
    (first, *_) = errors_of("cat", 0)
    wrong = SimpleNamespace(sample_input=first.sample_input, error_type=kind, error_regex=pattern)
    monkeypatch.setattr("optest.torch.opinfo.source.errors_of", lambda *_: (wrong,))
    (only,) = entries("cat")
    assert only["skip"].startswith("torch on the CPU says 'RuntimeError: ")
    assert only["skip"].endswith(
        f"but OpInfo {kind.__name__}" + (f" with a text that matches {pattern!r}" * bool(pattern))
    )


def test_an_operator_without_error_inputs_has_none() -> None:
    assert entries("exp") == []


def test_error_inputs_that_cannot_be_made_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no such device")

    monkeypatch.setattr("optest.torch.opinfo.source.errors_of", fails)
    (only,) = entries("cat")
    assert says_exactly(only["skip"], "sources.its_error_inputs_cannot")


@pytest.mark.parametrize(
    "name", ["cat", "gather", "nn.functional.embedding", "multinomial", "__rdiv__", "linalg.lstsq"]
)
def test_torch_refuses_what_it_has_to(name: str) -> None:
    found = [case for case in asked(name) if case.skip is None]
    verdicts = {case.id: verdict_of(case) for case in found}
    assert {each.message for each in verdicts.values() if each.status is not Status.PASSED} == set()
    assert {each.evidence for each in verdicts.values()} == {Evidence.RAISED_AS_EXPECTED}


def test_values_are_made_again_in_a_worker() -> None:
    for case in asked("gather"):
        if case.skip is None:
            again = case_from_wire(case_to_wire(case), operators.get)
            assert again == case
            number = int(case.name.rpartition("error")[2])
            tensors = tensors_of(errors_of("gather", 0)[number].sample_input)
            for array, tensor in zip(make_inputs(again)[0], tensors, strict=True):
                assert array.tobytes() == array_of(tensor).tobytes()


@pytest.mark.heavy
def test_memory_that_nobody_wrote_to_holds_the_same_in_every_process() -> None:
    """Some error inputs of multinomial are made by torch.empty."""
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
    """Torch, but for what it does with what has to be refused."""

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
def test_a_device_that_takes_it_or_refuses_it_otherwise_fails(error: Exception | None, reason: Reason) -> None:
    (case, *_) = [each for each in asked("cat") if each.expects_error and "Sizes of" in each.expects_error.pattern]
    verdict = execute([case], Backend(error)).verdicts[0]
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason)


def test_what_torch_on_the_cpu_takes_is_no_refusal_of_a_device() -> None:
    (case, *_) = [each for each in asked("cat") if each.skip is None]
    legal = dataclasses.replace(case, attributes={"call": "torch.cat((input0,))"})
    verdict = execute([legal], Backend(RuntimeError("refused"))).verdicts[0]
    assert verdict.reason is Reason.NOT_REFUSED
