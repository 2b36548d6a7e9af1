"""What to try is told by the facts of a failure, where they say more than its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from texts import says

from optest.reporting.explain import explain
from optest.reporting.meanings import MEANINGS, NARROWER, remedy_of
from optest.spec import Reason

FACTS: list[tuple[Reason, dict[str, Any], str]] = [
    (Reason.STATE, {"printed": "tanh: done"}, "take the printing out of the call"),
    (Reason.STATE, {"float_mode": "rounding upward"}, "put them back on every way out"),
    (Reason.STATE, {"selected_device": "device 0:0 was selected, and then 0:9"}, "select the device only after"),
    (Reason.UNAVAILABLE, {"not_run": True}, "widen --device"),
    (Reason.SIGNAL, {"command": ["./test_ring"]}, "run the command by hand"),
    (Reason.EXIT_CODE, {"exit_code": 0, "phase": "run"}, "look for exit, _exit and quick_exit"),
    (
        Reason.RAISED,
        {"function": "xAdd", "status": "X_BAD_STRIDES"},
        "look for what makes xAdd return X_BAD_STRIDES: operator and mapping allow this call",
    ),
    (Reason.RAISED, {"hint": "annotate the parameter"}, "annotate the parameter"),
    (
        Reason.RAISED,
        {"exception": "RuntimeError: 0 active drivers ([]). There should only be one."},
        "--backend triton",
    ),
    (Reason.SHAPE, {"waive": "check_shape=False"}, "check_shape=False skips this check"),
    (Reason.DTYPE, {"waive": "check_dtype=False"}, "check_dtype=False skips this check"),
    (Reason.WRONG_DEVICE, {"waive": "check_device=False"}, "check_device=False skips this check"),
    (Reason.NAN, {"waive": "equal_nan=True"}, "equal_nan=True skips this check"),
    (Reason.INPUT_MUTATED, {"backend": "scene"}, "declare the tensor D.INOUT"),
    (Reason.INPUT_MUTATED, {"backend": "ffi"}, "under `in_place` of the mapping"),
    (
        Reason.INPUT_MUTATED,
        {"decorator": '@optest.kernel("relu", in_place=("x",))'},
        '@optest.kernel("relu", in_place=("x",))',
    ),
    (Reason.INPUT_MUTATED, {"by_reference": "cache"}, "the function of --reference changes only cache"),
    (Reason.OUT_OF_BOUNDS, {"refused_output": "y"}, "look at every argument before the first write: a caller may"),
    (Reason.STATE, {"view_of": "input0"}, "return a view where the model does"),
    (
        Reason.RAISED,
        {"backend": "triton", "exception": "Torch not compiled with CUDA enabled"},
        "as device=x.device does",
    ),
    (Reason.RAISED, {}, "the line below raises it again"),
    (Reason.RAISED, {"backend": "function", "traceback_tail": "…"}, "raise NotImplementedError"),
    (Reason.WRONG_ERROR, {"contradicted_by": "torch on the CPU"}, "make type and match of its expects_error what is"),
    (Reason.NOT_REFUSED, {"contradicted_by": "torch on the CPU"}, "take its expects_error away"),
    (Reason.BAD_CASE, {"mapping": "mine.yaml:12"}, "Make mine.yaml:12 what the header declares"),
    (Reason.BAD_CASE, {"built_in_mapping": "infiniop.yaml:47"}, "Copy its file"),
]


@pytest.mark.parametrize(("reason", "facts", "said"), FACTS)
def test_facts_tell_what_to_try(result: Callable[..., Any], reason: Reason, facts: dict[str, Any], said: str) -> None:
    assert said in remedy_of(reason, facts)
    last = explain(result(reason=reason, message="something", details=facts))[-2]
    assert last == f"  {reason.value}: {remedy_of(reason, facts)}"


def test_every_one_is_told_for_some_facts() -> None:
    told = {remedy_of(reason, facts) for reason, facts, _ in FACTS}
    assert len(told) == len(NARROWER) == len(FACTS)
    for each in NARROWER:
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
def test_without_such_facts_the_reason_tells_it(reason: Reason, facts: dict[str, Any]) -> None:
    assert remedy_of(reason, facts) == MEANINGS[reason].remedy


def test_facts_of_foreign_code_steer_no_terminal() -> None:
    facts = {"function": "x\x1b[31m", "status": "{nothing}\x00"}
    assert "\x1b" not in remedy_of(Reason.RAISED, facts)
    assert "{nothing}" in remedy_of(Reason.RAISED, facts)


@pytest.mark.parametrize("strides", [[-44, -11, -1], [2, 8, 1], [0, 3, 1]])
def test_an_output_with_strides_gets_no_hint_about_the_last_block(
    result: Callable[..., Any], strides: list[int]
) -> None:
    case = {"backend_config": {"torch": {"outputs": {"out": {"strides": strides, "offset": 244}}}}}
    text = "\n".join(explain(result(reason=Reason.OUT_OF_BOUNDS, message="behind the end", case=case)))
    assert says(text, "reporting.output_out_strides_offset", strides=strides)
    assert says(text, "reporting.out_of_bounds_check")
    assert "the tile" not in text
    dense = "\n".join(explain(result(reason=Reason.OUT_OF_BOUNDS, message="behind the end")))
    assert "OUT_OF_BOUNDS: check the mask of the last block" in dense or "the tile" in dense


def test_a_refused_call_that_wrote_gets_no_hint_about_strides(result: Callable[..., Any]) -> None:
    case = {"backend_config": {"ffi": {"outputs": {"out": {"strides": [0, 3, 1]}}}}}
    facts = {"refused_output": "out"}
    text = "\n".join(explain(result(reason=Reason.OUT_OF_BOUNDS, message="refused", details=facts, case=case)))
    assert says(text, "reporting.out_of_bounds_look")
    assert "check the" not in text


def test_lines_of_a_process_that_repeat_are_folded(result: Callable[..., Any]) -> None:
    lines = ["loading", *(f"log_softmax: row at 0x7f{n}a is empty" for n in range(11)), "one", "two", "three"]
    facts = {"stderr_tail": "\n".join(lines)}
    text = "\n".join(explain(result(reason=Reason.SIGNAL, message="died of SIGSEGV", details=facts)))
    assert text.count("log_softmax") == 1
    assert says(text, "reporting.more_lines_like_it")
    assert all(f"    {word}\n" in text for word in ("loading", "one", "two", "three"))
