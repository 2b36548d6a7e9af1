"""What makes two cases of different models one execution: everything that is computed, and nothing else."""

from __future__ import annotations

import pytest
from model_kit import cases_of

from optest.core.results import executions
from optest.spec import TestCase

BASE = "op: torch.sum, inputs: [{tensor: {shape: [4, 6], init: randn}}]"
ALIKE = {
    "other name": BASE,
    "description": f"{BASE}, description: elsewhere",
    "mark": f"{BASE}, mark: slow",
    "tolerance": f"{BASE}, rtol: 0.5, atol: 0.5",
    "the default dtype said": BASE.replace("init", "dtype: fp32, init"),
    "the strides that it has anyway": BASE.replace("init", "stride: [6, 1], init"),
    "no keyword": f"{BASE}, attrs: {{}}",
}
DIFFERENT = {
    "shape": BASE.replace("4, 6", "6, 4"),
    "dtype": f"{BASE}, dtype: bf16",
    "stride": BASE.replace("init", "stride: [1, 4], init"),
    "a stride of 0": BASE.replace("init", "stride: [0, 1], init"),
    "offset": BASE.replace("init", "storage_offset: 2, init"),
    "fill": BASE.replace("randn", "rand"),
    "seed": f"{BASE}, seed: 9",
    "operator": BASE.replace("torch.sum", "torch.mean"),
    "scalar": BASE.replace("}}]", "}}, {value: 1}]"),
    "keyword": f"{BASE}, kwmap: {{dim: 1}}",
    "keyword dtype": f"{BASE}, kwmap: {{dtype: torch.float64}}",
}


def both(first: str, second: str) -> tuple[TestCase, TestCase]:
    one, two = cases_of(f"model: m\ncases:\n  - {{name: a, {first}}}\n  - {{name: b, {second}}}\n")
    return one, two


@pytest.mark.parametrize("what", ALIKE)
def test_equal_calls_share_one_execution(what: str) -> None:
    assert len(executions(both(BASE, ALIKE[what]))) == 1


@pytest.mark.parametrize("what", DIFFERENT)
def test_different_calls_are_executed_separately(what: str) -> None:
    one, two = both(BASE, DIFFERENT[what])
    assert one.key != two.key
    assert len(executions((one, two))) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{value: '1'}", "{value: 1}"),
        ("{value: 1}", "{value: 1.0}"),
        ("{value: 1}", "{value: true}"),
        ("{value: 0.0}", "{value: -0.0}"),
        ("{value: [1, 2]}", "{value: [2, 1]}"),
        ("{value: '(1, 2)'}", "{value: [1, 2]}"),
        ("{value: float32}", "{value: torch.float32}"),
        ("{value: cpu}", "{value: 'None'}"),
        ("{py: '(1, None)'}", "{py: '(1, Ellipsis)'}"),
        ("{py: 'slice(0, 2)'}", "{py: 'slice(0, 2, 1)'}"),
    ],
)
def test_values_that_look_alike_are_not_the_same(first: str, second: str) -> None:
    call = "op: torch.add, inputs: [{{tensor: {{shape: [4, 6], init: randn}}}}, {}]"
    one, two = both(call.format(first), call.format(second))
    assert one.key != two.key, (one.attributes, two.attributes)


def test_dedupe_can_be_turned_off() -> None:
    assert len(executions(both(BASE, BASE), dedupe=False)) == 2
