"""What to try is told by the facts of a failure, where they say more than its reason."""

from __future__ import annotations

from typing import Any

import pytest
from reporting_kit import make_result
from texts import lacks, says

from optest.reporting.explain import explain
from optest.reporting.meanings import MEANINGS, SPECIFIC_REMEDIES, remedy_of
from optest.spec import Reason


def explained(reason: Reason, **more: Any) -> list[str]:
    return explain(make_result(reason=reason, message="something", **more))


DRIVERS = "0 active drivers ([]). There should only be one."
KERNEL = '@optest.kernel("relu", in_place=("x",))'
STRIDES = {"function": "xAdd", "status": "X_BAD_STRIDES"}
FACTS: list[tuple[Reason, dict[str, Any], str]] = [
    (Reason.STATE, {"printed": "tanh: done"}, "remove the output"),
    (Reason.STATE, {"float_mode": "rounding upward"}, "save rounding mode, flush-to-zero and traps"),
    (Reason.STATE, {"selected_device": "device 0:0 was selected, and then 0:9"}, "select the device only after"),
    (Reason.UNAVAILABLE, {"not_run": True}, "list more devices in --device"),
    (Reason.SIGNAL, {"command": ["./test_ring"]}, "run the command by hand"),
    (Reason.EXIT_CODE, {"exit_code": 0, "phase": "run"}, "look for exit, _exit and quick_exit"),
    (Reason.RAISED, STRIDES, "why xAdd returns X_BAD_STRIDES: operator and mapping allow this call"),
    (Reason.RAISED, {"hint": "annotate the parameter"}, "annotate the parameter"),
    (Reason.RAISED, {"exception": f"RuntimeError: {DRIVERS}"}, "--backend triton"),
    (Reason.SHAPE, {"waive": "check_shape=False"}, "check_shape=False skips the check"),
    (Reason.DTYPE, {"waive": "check_dtype=False"}, "check_dtype=False skips the check"),
    (Reason.WRONG_DEVICE, {"waive": "check_device=False"}, "check_device=False skips the check"),
    (Reason.NAN, {"waive": "equal_nan=True"}, "equal_nan=True skips the check"),
    (Reason.INPUT_MUTATED, {"backend": "scene"}, "declare the tensor D.INOUT"),
    (Reason.INPUT_MUTATED, {"backend": "ffi"}, "under `in_place` of the mapping"),
    (Reason.INPUT_MUTATED, {"decorator": KERNEL}, KERNEL),
    (Reason.INPUT_MUTATED, {"by_reference": "cache"}, "the function of --reference changes only cache"),
    (Reason.OUT_OF_BOUNDS, {"refused_output": "y"}, "check all arguments before the first write"),
    (Reason.STATE, {"view_of": "input0"}, "return a view if the model does"),
    (Reason.RAISED, {"backend": "triton", "exception": "Torch not compiled with CUDA enabled"}, "device=x.device"),
    (Reason.RAISED, {}, "reproduce it with the command below"),
    (Reason.RAISED, {"backend": "function", "traceback_tail": "…"}, "raise NotImplementedError"),
    (Reason.WRONG_ERROR, {"contradicted_by": "torch on the CPU"}, "set type and match of its expects_error"),
    (Reason.NOT_REFUSED, {"contradicted_by": "torch on the CPU"}, "remove its expects_error"),
    (Reason.BAD_CASE, {"mapping": "mine.yaml:12"}, "Change mine.yaml:12 to what the header declares"),
    (Reason.BAD_CASE, {"built_in_mapping": "infiniop.yaml:47"}, "Copy its file"),
]


@pytest.mark.parametrize(("reason", "facts", "said"), FACTS)
def test_facts_select_specific_remedy(reason: Reason, facts: dict[str, Any], said: str) -> None:
    assert said in remedy_of(reason, facts)
    assert f"  {reason.value}: {remedy_of(reason, facts)}" == explained(reason, details=facts)[-2]


def test_each_specific_remedy_applies_once() -> None:
    told = {remedy_of(reason, facts) for reason, facts, _ in FACTS}
    assert len(told) == len(SPECIFIC_REMEDIES) == len(FACTS)
    for each in SPECIFIC_REMEDIES:
        assert not each.remedy.endswith(".")


@pytest.mark.parametrize(
    ("reason", "facts"),
    [
        (Reason.STATE, {}),
        (Reason.EXIT_CODE, {"exit_code": 3, "command": ["./run.sh"]}),
        (Reason.RAISED, {"traceback_tail": 'File "mine.py", line 3'}),
        (Reason.BAD_CASE, {"input": "a"}),
        (Reason.VALUE, {"mapping": "mine.yaml:12"}),
    ],
)
def test_other_facts_leave_remedy_of_reason(reason: Reason, facts: dict[str, Any]) -> None:
    assert remedy_of(reason, facts) == MEANINGS[reason].remedy


def test_remedies_escape_facts() -> None:
    facts = {"function": "x\x1b[31m", "status": "{nothing}\x00"}
    assert "\x1b" not in remedy_of(Reason.RAISED, facts)
    assert "{nothing}" in remedy_of(Reason.RAISED, facts)


@pytest.mark.parametrize("strides", [[-44, -11, -1], [2, 8, 1], [0, 3, 1]])
def test_strided_output_has_remedy_about_strides(strides: list[int]) -> None:
    case = {"backend_config": {"torch": {"outputs": {"out": {"strides": strides, "offset": 244}}}}}
    text = "\n".join(explained(Reason.OUT_OF_BOUNDS, case=case))
    assert says(text, "reporting.output_out_strides_offset", strides=strides)
    assert says(text, "reporting.out_of_bounds_check")
    assert "the tile" not in text
    assert "the tile" in "\n".join(explained(Reason.OUT_OF_BOUNDS))


def test_refused_call_has_no_remedy_about_strides() -> None:
    case = {"backend_config": {"ffi": {"outputs": {"out": {"strides": [0, 3, 1]}}}}}
    text = "\n".join(explained(Reason.OUT_OF_BOUNDS, details={"refused_output": "out"}, case=case))
    assert says(text, "reporting.out_of_bounds_look")
    assert lacks(text, "reporting.out_of_bounds_check")


def test_repeated_output_lines_are_folded() -> None:
    lines = ["loading", *(f"log_softmax: row at 0x7f{n}a is empty" for n in range(11)), "one", "two", "three"]
    text = "\n".join(explained(Reason.SIGNAL, details={"stderr_tail": "\n".join(lines)}))
    assert text.count("log_softmax") == 1
    assert says(text, "reporting.more_lines_like_it")
    assert all(f"    {word}\n" in text for word in ("loading", "one", "two", "three"))
