"""``optest minimise``: wrong kernels, each reduced to the smallest call that its fault still shows in."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from texts import says
from user_shell import Ended, Shell, driver_text

from optest.api.minimising import smallest_line
from optest.core.interruption import Interruption

KERNELS = """
import numpy as np


def lost_tail(input):
    out = np.maximum(input, 0)
    if input.ndim and input.shape[-1] > 256 and input.shape[-1] % 8:
        out[..., -1] = -1
    return out


def lost_last_of_four(input):
    return np.maximum(input, 0) - (input.size > 100 and input.size % 4 == 1)


def lost_flat_tail(input):
    out = np.tanh(input)
    out.reshape(-1)[input.size // 128 * 128 :] *= input.size < 128
    return out


def read_as_dense(input):
    dense = np.lib.stride_tricks.as_strided(input, strides=np.empty(input.shape, input.dtype).strides)
    return np.maximum(dense, 0)


def only_half(input):
    return np.maximum(input, 0) + (input.dtype == np.float16)


def lost_nan(input):
    return np.where(input > 0, input, 0).astype(input.dtype)


def raises_if_small(input):
    if input.size < 10:
        raise ValueError("too small")
    return np.maximum(input, 0) + 1


def raises(input):
    raise ValueError(f"the shape is {list(input.shape)}" if input.ndim > 1 else "a row")


def wrong_dim(input, dim=-1, dtype=None):
    shifted = np.exp(input - input.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def dies(input):
    if input.size > 5:
        import os

        os.abort()
    return np.maximum(input, 0)


def right(input):
    return np.maximum(input, 0)
"""


@pytest.fixture
def minimised(optest: Shell, plan: Callable[[str], Path], tmp_path: Path) -> Callable[..., Ended]:
    """A case run by a kernel, then minimised; in a worker only what needs one."""

    def make(kernel: str, case: str, *arguments: str, op: str = "relu") -> Ended:
        (tmp_path / "kernels.py").write_text(KERNELS)
        plan(f"cases:\n  - {{op: {op}, {case}}}\n")
        env = {} if kernel == "dies" else {"OPTEST_ISOLATE": "none"}
        optest("run", "--plan", "plan.yaml", "--function", f"{op}=kernels:{kernel}", "-qq", env=env)
        return optest("minimise", *arguments, env=env)

    return make


def reduced(ended: Ended) -> str:
    """The last line: from what to what."""
    assert ended.status == 1, ended.text
    return next(line for line in ended.out.splitlines() if line.startswith("reduced from "))


@pytest.mark.parametrize(
    ("kernel", "case", "smallest"),
    [
        (
            "lost_tail",
            "dtypes: float16, shapes: {input0: 6x1001}",
            "relu[float32](257), ones: sizes, dimensions, dtypes",
        ),
        ("lost_last_of_four", "shapes: {input0: 1001}", "relu[float32](113), ones: sizes"),
        ("read_as_dense", "shapes: {input0: {shape: [4, 9, 37], strides: [700, 70, 1], offset: 9}}", "relu[float32](2"),
        ("only_half", "dtypes: float16, shapes: {input0: 64x100}", "relu[float16](scalar), ones: sizes, dimensions"),
        (
            "lost_nan",
            "shapes: {input0: 5}, generator: {fill: data, values: [1, 2, 3, nan, 5]}",
            "relu[float32](scalar), data(values=nan)",
        ),
        ("raises_if_small", "shapes: {input0: 16x64}", "relu[float32](10), ones"),
        ("raises", "shapes: {input0: 16x64x3}", "relu[float32](1x1), ones"),
        pytest.param("dies", "shapes: {input0: 16x64}", "relu[float32](6), ones", marks=pytest.mark.heavy),
    ],
)
def test_the_smallest_call_that_fails_alike(
    minimised: Callable[..., Ended], kernel: str, case: str, smallest: str
) -> None:
    assert f" to {smallest}" in reduced(minimised(kernel, case))


@pytest.mark.parametrize("shape", ["4x33", "5x4x7", "2x3x5x7", "1000"])
def test_flat_tail_is_reduced_completely(minimised: Callable[..., Ended], shape: str) -> None:
    line = reduced(minimised("lost_flat_tail", f"shapes: {{input0: {shape}}}", op="tanh"))
    assert " to tanh[float32](129), ones: " in line


def test_attributes_that_matter_stay(minimised: Callable[..., Ended]) -> None:
    line = reduced(minimised("wrong_dim", "shapes: {input0: 3x5x7}, attributes: {dim: 1}", op="softmax"))
    smallest = line.partition(" to ")[2]
    assert smallest.startswith("softmax[float32](")
    assert "dim=" in smallest
    assert "7" not in smallest.partition(")")[0]


def test_what_is_left_is_a_plan_that_fails(minimised: Callable[..., Ended], optest: Shell, tmp_path: Path) -> None:
    ended = minimised("read_as_dense", "shapes: {input0: {shape: [4, 9], strides: [90, 1]}}", "--write", "small.yaml")
    assert "plan: small.yaml" in ended.out
    text = (tmp_path / "small.yaml").read_text()
    assert '{"shape": [2], "strides": [2], "offset": 0}' in text
    optest("run", "--plan", "small.yaml", env={"OPTEST_ISOLATE": "none"}).expect(1, out="1 failed")


@pytest.mark.heavy
def test_minimise_skips_runs_of_minimise(minimised: Callable[..., Ended], optest: Shell) -> None:
    first = reduced(minimised("lost_tail", "shapes: {input0: 6x1001}"))
    assert (
        reduced(optest("minimise", env={"OPTEST_ISOLATE": "none"})).partition(" to ")[0] == first.partition(" to ")[0]
    )


def test_what_does_not_fail(minimised: Callable[..., Ended], optest: Shell, tmp_path: Path) -> None:
    minimised("right", "shapes: {input0: 4}, name: well", "well").expect(2, err="well did not fail: it passed")
    minimised("lost_nan", "shapes: {input0: 4}, generator: special, name: bad")
    (tmp_path / "kernels.py").write_text(
        KERNELS.replace("def lost_nan", "def no_longer").replace("def right", "def lost_nan")
    )
    optest("minimise", "bad", env={"OPTEST_ISOLATE": "none"}).expect(2, err="does not fail this time: it passed")


@pytest.mark.heavy
def test_a_refusal_stays_one(optest: Shell, plan: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "takes_all.py").write_text(driver_text("takes-all", "return [np.zeros((1, 1), np.float32)]"))
    env = {"OPTEST_PLUGINS": "takes_all"}
    plan("cases:\n  - {op: add, shapes: {input0: 4x6, input1: 5x6}, expects_error: {type: Exception}}\n")
    optest("run", "--plan", "plan.yaml", "--backend", "takes-all", "-qq", env=env)
    reduced(optest("minimise", "--write", "plan.yaml", env=env))
    text = (tmp_path / "plan.yaml").read_text()
    assert "[4, 6]" not in text
    plan("\n".join(line for line in text.splitlines() if "expects_error" not in line))
    assert "nothing was run" in optest("run", "--plan", "plan.yaml", env=env).err


@pytest.mark.heavy
@pytest.mark.parametrize(
    "command",
    ["run --op relu --shape input0=6x1001", "check --op relu --set sizes"],
)
def test_shrink_is_told_below_the_failure(optest: Shell, tmp_path: Path, command: str) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    ended = optest(*command.split(), "--dtype", "float32", "--function", "relu=kernels:lost_tail", "--shrink")
    block = next(each for each in ended.out.split("\n\n") if each.startswith("FAILED"))
    smallest = block.splitlines()[-1].removeprefix("  smallest: ")
    assert "--shape input0=257 --generator ones" in smallest, ended.text
    optest(*shlex.split(smallest)[1:]).expect(1, out="relu[float32](257)")
    assert len(list((tmp_path / ".optest/runs").iterdir())) == 2


def test_shrink_says_why_it_is_not_reduced(optest: Shell, plan: Callable[[str], Path]) -> None:
    plan("cases:\n  - {op: relu, shapes: {input0: 8}, xfail: known}\n")
    assert says(optest("run", "plan.yaml", "--shrink").out, "cli.not_reduced_relu_float")


def test_interrupted_run_is_not_shrunk() -> None:
    nothing: Any = None
    with pytest.raises(KeyboardInterrupt):
        smallest_line(nothing, nothing, Interruption(is_cancelled=True), nothing)


def test_no_attempt_begins_after_the_limit(minimised: Callable[..., Ended]) -> None:
    ended = minimised("lost_tail", "shapes: {input0: 6x1001}", "--limit", "0")
    assert says(ended.out, "cli.nothing_of_it_can")
