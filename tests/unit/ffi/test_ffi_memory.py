"""Writes to elements are never reported; a written byte anywhere else always is."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import refusal, says, says_exactly

from optest.memory.buffer_sets import BufferPlacement, BufferSet, workspace_buffer
from optest.memory.buffers import Buffer, never_written
from optest.memory.poisons import READ_POISONS, WRITE_POISONS, Poison
from optest.memory.regions import Placement, page_region
from optest.numerics import numpy_dtype, widen
from optest.process import fork_and_run
from optest.spec import DTYPES, Fault, Reason, TensorSpec, contiguous_strides, dtype

linux = pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded with mprotect")


@st.composite
def layouts(draw: st.DrawFn, *, least: int = 0) -> TensorSpec:
    """Any shape up to rank 3 with any strides: dense, transposed, padded, reversed, repeated, overlapping."""
    shape = tuple(draw(st.lists(st.integers(least, 4), max_size=3)))
    kind = draw(st.sampled_from(DTYPES))
    strides = draw(st.one_of(st.none(), st.tuples(*(st.integers(-7, 7) for _ in shape))))
    if strides is None:
        return TensorSpec(dtype=kind, shape=shape, offset=draw(st.integers(0, 5)))
    reach = sum(min(0, (size - 1) * stride) for size, stride in zip(shape, strides, strict=True))
    offset = (-reach if 0 not in shape else 0) + draw(st.integers(0, 5))
    return TensorSpec(dtype=kind, shape=shape, strides=strides, offset=offset)


def int16(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> TensorSpec:
    return TensorSpec(dtype=dtype("int16"), shape=shape, strides=strides, offset=offset)


placements = st.sampled_from(list(Placement) if sys.platform == "linux" else [Placement.HEAP])
poisons = st.sampled_from(list(Poison))


def slot_of(spec: TensorSpec, index: tuple[int, ...]) -> int:
    strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
    return spec.offset + sum(axis * stride for axis, stride in zip(index, strides, strict=True))


def bytes_of_elements(buffer: Buffer) -> set[int]:
    """Positions in the region's memory that belong to an element, computed one by one."""
    size = buffer.spec.dtype.itemsize_bytes
    slots = {slot_of(buffer.spec, index) for index in np.ndindex(*buffer.spec.shape)}
    return {buffer.region.start + slot * size + byte for slot in slots for byte in range(size)}


@given(layouts(), placements, poisons, st.integers(0, 255))
def test_write_to_elements_is_never_reported(spec: TensorSpec, placement: Placement, poison: Poison, byte: int) -> None:
    buffer = Buffer.allocate(spec, name="x", placement=placement, poison=poison)
    assert buffer.outside() is None
    for position in bytes_of_elements(buffer):
        buffer.region.memory[position] = byte
    assert buffer.outside() is None


@given(layouts(), placements, poisons, st.data())
def test_byte_outside_elements_is_always_reported(
    spec: TensorSpec, placement: Placement, poison: Poison, data: st.DataObject
) -> None:
    buffer = Buffer.allocate(spec, name="x", placement=placement, poison=poison)
    elements = bytes_of_elements(buffer)
    outside = [position for position in range(buffer.region.memory.size) if position not in elements]
    if not outside:
        return
    position = data.draw(st.sampled_from(outside))
    values = buffer.array.copy()
    buffer.region.memory[position] ^= data.draw(st.integers(1, 255))
    for change in (buffer.outside(), buffer.mutated(values)):
        assert change is not None
        assert buffer.address + change.byte == buffer.region.address + position
        assert change.slots == 1
        region = buffer.region
        place = "before" if position < region.start else "behind" if position >= region.end else "gap"
        assert change.place == place


@given(layouts(least=1), placements, poisons, st.data())
def test_changed_element_is_reported_with_index(
    spec: TensorSpec, placement: Placement, poison: Poison, data: st.DataObject
) -> None:
    buffer = Buffer.allocate(spec, name="x", placement=placement, poison=poison)
    position = data.draw(st.sampled_from(sorted(bytes_of_elements(buffer))))
    values = buffer.array.copy()
    assert buffer.mutated(values) is None
    buffer.region.memory[position] ^= 1
    change = buffer.mutated(values)
    assert change is not None
    assert change.place == "element"
    assert change.index is not None
    assert len(change.index) == spec.rank
    assert slot_of(spec, change.index) == (position - buffer.region.start) // spec.dtype.itemsize_bytes
    assert buffer.address + change.byte == buffer.region.address + position


@given(layouts(least=1), st.sampled_from([WRITE_POISONS, READ_POISONS[:2], READ_POISONS[1:]]), st.data())
def test_only_unwritten_elements_are_reported(
    spec: TensorSpec, pair: tuple[Poison, Poison], data: st.DataObject
) -> None:
    buffers = [Buffer.allocate(spec, poison=poison) for poison in pair]
    assert never_written(*buffers).all()
    index = data.draw(st.tuples(*(st.integers(0, size - 1) for size in spec.shape)))
    value = data.draw(st.binary(min_size=spec.dtype.itemsize_bytes, max_size=spec.dtype.itemsize_bytes))
    for buffer in buffers:
        buffer.array[index] = np.frombuffer(value, np.uint8).view(buffer.array.dtype)[0]
    left = never_written(*buffers)
    assert left.shape == spec.shape
    assert not left[index]
    shares = np.zeros(spec.storage_elements, np.bool_)
    places = np.ndarray(spec.shape, np.bool_, shares.data, spec.offset, spec.strides)
    places[index] = True
    assert np.array_equal(left, ~places)


def test_equal_poisons_are_refused() -> None:
    spec = TensorSpec(dtype=dtype("float32"), shape=(2,))
    with refusal(ValueError, "ffi.should_hold_different_ones"):
        never_written(Buffer.allocate(spec), Buffer.allocate(spec))


@given(layouts(), st.sampled_from([16, 64, 256, 4096]), st.integers(0, 9))
def test_pointer_has_requested_alignment(spec: TensorSpec, alignment: int, shift: int) -> None:
    buffer = Buffer.allocate(spec, alignment=alignment, shift=shift)
    assert (buffer.address - shift * spec.dtype.itemsize_bytes) % alignment == 0
    if spec.elements:
        assert buffer.address == buffer.array.ctypes.data


@pytest.mark.parametrize("alignment", [0, 4, 24])
def test_invalid_alignment_is_refused(alignment: int) -> None:
    with refusal(ValueError, "ffi.power_of_two_and"):
        Buffer.allocate(TensorSpec(dtype=dtype("float64"), shape=(1,)), alignment=alignment)


@given(layouts(), placements)
def test_put_keeps_gaps_poisoned(spec: TensorSpec, placement: Placement) -> None:
    buffer = Buffer.allocate(spec, placement=placement, poison=Poison.NAN)
    values = np.zeros(spec.shape, numpy_dtype(spec.dtype))
    buffer.put(values)
    assert buffer.outside() is None
    assert buffer.array.tobytes() == values.tobytes()


def test_put_refuses_other_dtype_and_shape() -> None:
    buffer = Buffer.allocate(TensorSpec(dtype=dtype("float32"), shape=(2, 1)), name="x")
    for wrong in (np.zeros((2, 2), np.float32), np.zeros((2, 1)), np.zeros(2, np.float32)):
        with pytest.raises(ValueError, match=r"expected float32\[2x1\] for x"):
            buffer.put(wrong)


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_poisons_have_expected_values(kind) -> None:
    patterns = [poison.pattern(kind) for poison in Poison]
    assert all(len(pattern) == kind.itemsize_bytes for pattern in patterns)
    loud = [widen(np.frombuffer(p.pattern(kind), np.uint8).view(numpy_dtype(kind)))[0] for p in READ_POISONS]
    if kind.is_float:
        assert np.isnan(loud[0])
        assert (loud[1], loud[2]) == (kind.max_finite, -kind.max_finite)
    elif kind.is_complex:
        assert np.isnan(loud[0].real)
        assert np.isnan(loud[0].imag)
        assert loud[1] == complex(kind.max_finite, kind.max_finite)
    elif kind.is_integer:
        assert (loud[1], loud[2]) == (kind.max_int, kind.min_int)
    else:
        assert (bool(loud[1]), bool(loud[2])) == (True, False)
    assert all(a ^ b == 0xFF for a, b in zip(*(p.pattern(kind) for p in WRITE_POISONS), strict=True))
    assert len({poison.pattern(kind) for poison in READ_POISONS}) == 3


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (int16((2, 3), (1, 2)), "behind the end of out, behind element [1, 2]: "),
        (int16((2, 3), (-3, 1), 3), "behind the end of out, behind element [0, 2]: "),
        (int16((2, 3), (0, 1)), "behind the end of out, behind element [0, 2]: "),
        (int16((), ()), "behind the end of out: "),
        (int16((0, 3), (3, 1)), "behind the end of out: "),
    ],
    ids=["columns", "backwards", "stride 0", "one element", "empty"],
)
def test_change_outside_names_the_nearest_element(spec: TensorSpec, words: str) -> None:
    buffer = Buffer.allocate(spec, name="out")
    buffer.region.memory[buffer.region.end] = 0
    assert f"memory was written 0 bytes {words}a5 became 00" == str(buffer.outside())


def test_change_before_reversed_rows_names_last_row() -> None:
    buffer = Buffer.allocate(int16((2, 3), (-3, 1), 3), name="out")
    buffer.region.memory[buffer.region.start - 1] = 0
    assert says(str(buffer.outside()), "ffi.byte_before_the_start")


def test_change_is_located() -> None:
    buffer = Buffer.allocate(TensorSpec(dtype=dtype("float32"), shape=(2, 3), strides=(4, 1)), name="out")
    start, end, gap = buffer.region.start, buffer.region.end, "a5 a5 a5 a5 became 00 a5 a5 a5"
    for position, words in (
        (start - 8, "8 bytes before the start of out, before element [0, 0]: a5 became 00"),
        (end + 5, "5 bytes behind the end of out, behind element [1, 2]: a5 became 00"),
        (start + 12, f"in a gap between the elements of out, behind element [0, 2], at byte 12: {gap}"),
    ):
        buffer.region.memory[position] = 0
        assert says_exactly(str(buffer.outside()), "ffi.memory_was_written", words=words)
        buffer.region.memory[position] = 0xA5
    values = buffer.array.copy()
    buffer.array[1, [0, 2]] = 1.0
    assert says_exactly(str(buffer.mutated(values)), "ffi.memory_was_written_in")


@linux
@pytest.mark.parametrize(
    ("placement", "byte", "dies"),
    [
        (Placement.PAGES_END, 24, True),
        (Placement.PAGES_END, 23, False),
        (Placement.PAGES_START, -1, True),
        (Placement.PAGES_START, 0, False),
    ],
)
@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
def test_pages_trap_at_the_exact_byte(placement: Placement, byte: int, dies: bool, write: bool) -> None:
    buffer = Buffer.allocate(TensorSpec(dtype=dtype("float32"), shape=(6,)), name="x", placement=placement)
    address = buffer.address + byte

    def touch() -> bytes:
        faulthandler.disable()
        ctypes.memset(address, 1, 1) if write else ctypes.string_at(address, 1)
        return b"survived"

    fork = fork_and_run(touch)
    assert fork.read(200) == (b"" if dies else b"survived")
    assert fork.end() == ((-signal.SIGSEGV, signal.SIGSEGV) if dies else (0, None))
    behind = "0 bytes behind the end of x (float32[6]), 1 element behind the last"
    before = "1 byte before the start of x (float32[6]), 1 element before the first"
    assert buffer.describe(address) == {24: behind, -1: before}.get(byte, f"at byte {byte} of x (float32[6])")


@linux
def test_pages_are_released() -> None:
    spec = TensorSpec(dtype=dtype("float32"), shape=(1 << 20,))
    before = held_kib()
    for _ in range(300):
        Buffer.allocate(spec, placement=Placement.PAGES_END)
    assert held_kib() - before < 600_000, "300 buffers of 4 MiB were not released"


def held_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def test_describe_covers_only_nearby_addresses() -> None:
    buffer = Buffer.allocate(TensorSpec(dtype=dtype("int8"), shape=(3,)), name="x")
    assert buffer.describe(buffer.address + 1) == "at byte 1 of x (int8[3])"
    assert says_exactly(buffer.describe(buffer.address + 3), "ffi.bytes_behind_the_end")
    assert buffer.describe(buffer.address + 100_000) is None
    assert buffer.describe(0) is None


@given(st.integers(0, 3000), placements, st.data())
@settings(max_examples=50)
def test_workspace_has_requested_size_and_guards(size: int, placement: Placement, data: st.DataObject) -> None:
    pointers = BufferSet((BufferPlacement(placement=placement), (), size)).pointers()
    assert pointers["workspace_size"] == size
    assert (pointers["workspace"] is None) == (size == 0)
    workspace = workspace_buffer(size, placement)
    assert workspace.outside() is None
    ctypes.memset(workspace.address, data.draw(st.integers(0, 255)), size)
    assert workspace.outside() is None
    if placement is Placement.HEAP:
        assert workspace.region.memory.size >= size + 2 * 256
        ctypes.memset(workspace.address + size, 0, 1)
        change = workspace.outside()
        assert change is not None
        assert (change.place, change.distance, change.byte) == ("behind", 0, size)
        with pytest.raises(Fault, match="0 bytes behind") as info:
            workspace.require_clean(reason=Reason.WORKSPACE)
        assert info.value.reason is Reason.WORKSPACE
        assert "element" not in info.value.message


@linux
def test_pages_are_protected_and_writeable_again() -> None:
    buffer = Buffer.allocate(TensorSpec(dtype=dtype("float32"), shape=(5 << 20,)), placement=Placement.PAGES_END)
    buffer.array.fill(1)
    buffer.region.protect(writeable=False)
    child = os.fork()
    if child == 0:  # a write ends this process
        faulthandler.disable()
        buffer.array[1 << 20] = 2
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == 11
    assert buffer.array[1 << 20] == 1
    buffer.region.protect(writeable=True)
    buffer.array.fill(3)
    assert (buffer.array == 3).all()


@linux
def test_pages_are_reused_without_views() -> None:
    size = 5 << 20
    first = page_region(size, at_end=True)
    first.memory.fill(7)
    first.protect(writeable=False)
    address, view = first.address, first.memory[:4].view(np.uint32)
    del first
    assert page_region(size, at_end=True).address != address  # a view is alive
    assert view[0] == 0x07070707
    del view
    regions = [page_region(size, at_end=True) for _ in range(3)]
    assert address in [region.address for region in regions]
    for region in regions:
        region.memory.fill(1)


OFF_BY_ONE = """
#include <stddef.h>
void fill(float *out, ptrdiff_t rows, ptrdiff_t stride, ptrdiff_t first, ptrdiff_t count) {
  for (ptrdiff_t row = 0; row < rows; row++)
    for (ptrdiff_t column = first; column < first + count; column++) out[row * stride + column] = 1.0f;
}
"""


@pytest.mark.cxx
@pytest.mark.parametrize(
    ("first", "count", "words"),
    [
        (0, 3, None),
        (0, 4, "in a gap between the elements of out, behind element [0, 2], at byte 12"),
        (-1, 3, "in a gap between the elements of out, behind element [0, 2], at byte 16"),
    ],
)
def test_c_function_out_of_range_is_caught(build_library, first: int, count: int, words: str | None) -> None:
    fill = ctypes.CDLL(str(build_library(OFF_BY_ONE))).fill
    fill.argtypes = (ctypes.c_void_p, *(ctypes.c_ssize_t,) * 4)
    buffer = Buffer.allocate(TensorSpec(dtype=dtype("float32"), shape=(2, 3), strides=(5, 1)), name="out")
    fill(buffer.address, 2, 5, first, count)
    change = buffer.outside()
    assert (None if change is None else words in str(change)) == (None if words is None else True)
    assert buffer.untouched().any() == (first != 0)
