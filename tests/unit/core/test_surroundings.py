"""Reads and writes of memory around inputs, and in freed blocks, are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_kit import Calls, case_of, spec_of, verdict_of
from texts import says, says_exactly

from optest.memory.margins import Margins, storage_around
from optest.numerics import numpy_dtype, view, widen
from optest.spec import CheckState, Reason, Status, TensorSpec, dtype, dtype_names


def rounded_up(x: Any, step: int = 8) -> Any:
    """Return the elements that a kernel without a mask reads: whole blocks."""
    return np.lib.stride_tricks.as_strided(x, (-(-x.size // step) * step,), (x.itemsize,))


def largest(x: Any) -> Any:
    return np.asarray(np.fmax.reduce(rounded_up(x.reshape(-1))))


def test_read_beyond_input_without_nan_is_found() -> None:
    assert verdict_of(largest, case_of("amax", spec_of(16))).status is Status.PASSED
    found = verdict_of(largest, case_of("amax", spec_of(13)))
    assert found.reason is Reason.READ_OUT_OF_BOUNDS
    assert says_exactly(found.message, "core.output_out_depends_on")
    assert found.details["place"] == "behind"


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8", "int64"])
def test_of_every_element_type(kind: str) -> None:
    def smallest(x: Any) -> Any:
        row = rounded_up(x.reshape(-1))
        return np.asarray(np.where(np.isnan(widen(row)), np.inf, widen(row)).min()).astype(x.dtype)

    assert verdict_of(smallest, case_of("amin", spec_of(13, kind=kind))).reason is Reason.READ_OUT_OF_BOUNDS


def test_a_read_before_the_start_names_the_element() -> None:
    def shifted(x: Any) -> Any:
        memory, at = storage_around(x)
        return np.where(np.arange(x.size) > 2, np.maximum(x, memory[at - 4 : at].view(np.float32)[0]), np.maximum(x, 0))

    found = verdict_of(shifted, case_of("relu", spec_of(5)))
    assert found.reason is Reason.READ_OUT_OF_BOUNDS
    assert says_exactly(found.message, "core.element_of_output_out")


def test_what_differs_each_time_is_not_to_blame() -> None:
    turns = iter(range(1000))

    def noisy(x: Any) -> Any:
        return np.maximum(x, 0) * np.float32(1 + (next(turns) % 2) * 2.0**-23)

    driver = Calls(noisy)
    found = verdict_of(driver, case_of("gelu", spec_of(5)))
    assert found.reason is not Reason.READ_OUT_OF_BOUNDS
    (check,) = [each for each in found.checks if each.name == "two paddings of the inputs"]
    assert check.state is CheckState.INCONCLUSIVE
    assert len(driver.shapes) > 3


def test_a_pass_costs_one_further_call() -> None:
    driver = Calls(lambda x: np.maximum(x, 0))
    found = verdict_of(driver, case_of("relu", spec_of(5)))
    assert found.status is Status.PASSED
    assert len(driver.shapes) == 2
    assert {"two paddings of the inputs", "fresh memory"} <= {each.name for each in found.checks}
    driver.reads_inputs = False  # type: ignore[attr-defined]
    verdict_of(driver, case_of("relu", spec_of(5)))
    assert len(driver.shapes) == 3


def test_a_write_beside_an_input() -> None:
    def overruns(x: Any) -> Any:
        rounded_up(x)[x.size] = 7
        return np.maximum(x, 0)

    found = verdict_of(overruns, case_of("relu", spec_of(13)))
    assert found.reason is Reason.OUT_OF_BOUNDS
    assert says(found.message, "core.bytes_behind_the_end")


def without_tail(x: Any) -> Any:
    out = np.empty_like(x)
    out[..., :-1] = np.maximum(x, 0)[..., :-1]
    return out


@pytest.mark.parametrize("shape", [(3,), (37,), (5, 300), (70, 1000)])
def test_elements_that_numpy_leaves_unwritten(shape: tuple[int, ...]) -> None:
    found = verdict_of(without_tail, case_of("relu", spec_of(*shape)))
    assert found.reason is Reason.UNWRITTEN
    assert f"the first at {[0] * (len(shape) - 1) + [shape[-1] - 1]}" in found.message


@pytest.mark.parametrize("count", [3, 30, 300])
def test_elements_left_in_memory_that_many_arrays_had(count: int) -> None:
    """Arrays of the size of the output are in garbage cycles, so that a collection may free them at any moment."""

    class Node:
        pass

    for allocations in range(0, 700, 25):
        for _ in range(count):
            node = Node()
            node.itself, node.array = node, np.zeros(1500, np.float32)  # type: ignore[attr-defined]
        lists: list[Any] = [[] for _ in range(allocations)]
        assert verdict_of(without_tail, case_of("relu", spec_of(5, 300))).reason is Reason.UNWRITTEN
        lists.clear()


@pytest.mark.parametrize("name", dtype_names())
@pytest.mark.parametrize(("strides", "offset"), [(None, 0), (None, 3), ((-4, 1), 11), ((0, 2), 5), ((1, 3), 0)])
def test_margins_hold_what_shows(name: str, strides: tuple[int, ...] | None, offset: int) -> None:
    spec = TensorSpec(dtype=dtype(name), shape=(3, 4), strides=strides, offset=offset)
    tensor = view(np.ones(spec.storage_elements, numpy_dtype(spec.dtype)), spec)
    margins = Margins(64)
    for each in (margins, margins.all_others(1)):
        padded = each.around(tensor, 0, before=spec.lowest_index)
        assert (padded.array == tensor).all()
        assert padded.array.strides == tensor.strides
        assert padded.written("x") is None
        assert (padded.array.ctypes.data - tensor.itemsize * spec.offset) % 64 == 0
        values = widen(padded.storage[-64:].view(tensor.dtype))
        assert np.isnan(values).all() if spec.dtype.is_inexact and each is margins else np.isfinite(values).all()
        assert (
            each is margins or not (values == widen(padded.storage[:64].view(tensor.dtype))[0]).all() or name == "bool"
        )
    first, other = (each.around(tensor, 0).contents[1] for each in (margins, margins.all_others(1)))
    assert first != other


def test_a_result_that_the_next_call_overwrites() -> None:
    """In the first call of a value it is right; the caller still has it when the next one writes the same memory."""
    kept = np.zeros(8, np.float32)

    def into_one_buffer(x: Any) -> Any:
        np.maximum(x, 0, out=kept)
        return kept.view()

    found = verdict_of(into_one_buffer, case_of("relu", spec_of(8)))
    assert found.reason is Reason.STATE
    assert says(found.message, "core.overwrote_the_result_of")


def test_kept_equal_result_is_no_fault() -> None:
    kept: dict[bytes, Any] = {}
    device = Calls(lambda x: kept.setdefault(x.tobytes(), np.maximum(x, 0)))
    assert verdict_of(device, case_of("relu", spec_of(8))).status is Status.PASSED
