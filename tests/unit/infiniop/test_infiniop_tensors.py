"""TestTensor: every mode, dtype and layout on NumPy memory; guards, gaps, seeds; torch and DLPack if installed."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import refusal

from optest.errors import Unavailable, UnknownName, UsageError
from optest.infiniop import InfiniDeviceEnum, InfiniDtype, TestTensor, TestWorkspace, set_seed, torch_bridge
from optest.infiniop.datatypes import element_of
from optest.infiniop.scalar_type import scalar_types
from optest.infiniop.values import GIVEN_MODES, MODES
from optest.memory.regions import Placement
from optest.numerics import numpy_dtype, round_to, widen
from optest.spec import Fault, Reason
from optest.spec import dtype as dtype_called

CPU = InfiniDeviceEnum.CPU
F32 = InfiniDtype.F32
SQUARE = np.arange(4, dtype=np.float32).reshape(2, 2)
DTYPES = [dt for dt in InfiniDtype if dt is not InfiniDtype.INVALID]
DRAWN = [mode for mode in MODES if mode not in (*GIVEN_MODES, "empty")]
LAYOUTS = [
    ((3, 4), None),
    ((3, 4), (1, 3)),
    ((3, 4), (9, 2)),
    ((3, 4), (0, 1)),
    ((3, 4), (-4, -1)),
    ((4, 4), (1, 1)),
    ((3, 1), (1, 77)),
    ((), None),
    ((), ()),
    ((0, 3), None),
    ((2, 0, 3), (-5, 2, 9)),
]


@pytest.mark.parametrize("dt", DTYPES, ids=lambda dt: dt.name)
@pytest.mark.parametrize("mode", DRAWN)
def test_every_mode_draws_every_dtype_and_layout(dt: InfiniDtype, mode: str) -> None:
    for shape, strides in LAYOUTS:
        tensor = TestTensor(shape, strides, dt, CPU, mode=mode)
        tensor.check_unchanged()
        logical, actual = tensor.logical_array(), tensor.actual_array()
        assert logical.shape == actual.shape == tuple(shape)
        assert np.ascontiguousarray(actual).tobytes() == logical.tobytes()


@pytest.mark.parametrize("dt", DTYPES, ids=lambda dt: dt.name)
def test_ones_and_zeros_have_their_values(dt: InfiniDtype) -> None:
    for mode, value in (("ones", 1), ("zeros", 0)):
        drawn = TestTensor((2, 3), None, dt, CPU, mode=mode).logical_array()
        wanted = value + value * 1j if drawn.dtype.kind == "c" and mode == "ones" and dt in _PACKED else value
        assert np.all(widen(drawn) == wanted)


_PACKED = (InfiniDtype.C16, InfiniDtype.C32)


@given(shape=st.lists(st.integers(0, 4), max_size=3), data=st.data(), dt=st.sampled_from(DTYPES))
def test_logical_and_physical_agree_for_any_strides(shape: list[int], data: st.DataObject, dt: InfiniDtype) -> None:
    strides = [data.draw(st.integers(-6, 6)) for _ in shape]
    tensor = TestTensor(shape, strides, dt, CPU)
    tensor.check_unchanged()
    assert tensor.is_broadcast() == (0 in strides)
    assert np.ascontiguousarray(tensor.actual_array()).tobytes() == tensor.logical_array().tobytes()


def test_gaps_are_poisoned_with_nan() -> None:
    tensor = TestTensor((3, 4), (9, 2), F32, CPU, mode="ones", offset=2)
    storage = tensor._memory.buffer.region
    everything = storage.memory[storage.start : storage.end].view(np.float32)
    assert np.isnan(everything).sum() == everything.size - 12
    assert np.nansum(everything) == 12


@pytest.mark.parametrize(
    ("place", "message"),
    [(-1, "1 byte before the start of"), (1, r"in a gap between the elements .* behind element \[0, 0\]")],
)
def test_write_outside_elements_is_reported(place: int, message: str) -> None:
    tensor = TestTensor((3, 4), (9, 2), F32, CPU)
    tensor.check_guards()
    buffer = tensor._memory.buffer
    start = buffer.region.start + 4 * place
    buffer.region.memory[start : start + 4] = 0
    with pytest.raises(Fault, match=message) as caught:
        tensor.check_guards()
    assert caught.value.reason is Reason.OUT_OF_BOUNDS


def test_changed_input_is_reported() -> None:
    tensor = TestTensor((3, 4), (1, 3), F32, CPU)
    tensor.actual_array()[2, 1] = 7
    with pytest.raises(Fault, match=r"element \[2, 1\]") as caught:
        tensor.check_unchanged()
    assert caught.value.reason is Reason.INPUT_MUTATED


def test_unwritten_output_is_reported() -> None:
    tensor = TestTensor((2, 3), (5, 1), InfiniDtype.F16, CPU, mode="empty")
    tensor.actual_array()[...] = 1
    tensor.check_written()
    again = TestTensor((2, 3), (5, 1), InfiniDtype.F16, CPU, mode="empty")
    again.actual_array()[0] = 1
    with pytest.raises(Fault, match=r"3 of 6 elements of output tensor\d+ were never written; the first at \[1, 0\]"):
        again.check_written()
    with pytest.raises(UsageError, match="no logical values"):
        again.logical_array()


def test_values_depend_on_the_seed() -> None:
    def bits(count: int = 2) -> list[bytes]:
        return [TestTensor((5, 5), None, F32, CPU).logical_array().tobytes() for _ in range(count)]

    set_seed(3)
    first = bits()
    set_seed(3)
    assert bits() == first
    set_seed(4)
    assert bits() != first
    assert first[0] != first[1], "two tensors of one shape hold different values"
    one, other = (TestTensor((5,), None, F32, CPU, seed=9).logical_array() for _ in range(2))
    assert one.tobytes() == other.tobytes()


def test_committed_bits_of_a_seed() -> None:
    drawn = TestTensor((4,), None, F32, CPU, seed=0).logical_array()
    assert [float(each).hex() for each in drawn] == GOLDEN


GOLDEN = ["0x1.9ba17a0000000p-2", "0x1.8b99e80000000p-1", "0x1.ea1fe40000000p-2", "0x1.206cbe0000000p-1"]


def test_random_values_cover_their_range() -> None:
    floats = TestTensor((1000,), None, F32, CPU, seed=1).logical_array()
    assert 0 <= floats.min() < 0.1
    assert 0.9 < floats.max() <= 1
    for dt in (InfiniDtype.I8, InfiniDtype.U16, InfiniDtype.I64, InfiniDtype.U64):
        drawn = TestTensor((2000,), None, dt, CPU, seed=1).logical_array()
        assert int(drawn.max()) > np.iinfo(drawn.dtype).max // 4
        assert np.iinfo(drawn.dtype).min == 0 or int(drawn.min()) < np.iinfo(drawn.dtype).min // 4
    special = TestTensor((1000,), None, InfiniDtype.F16, CPU, mode="special", seed=1).logical_array()
    assert np.isnan(special).any()
    assert np.isinf(special).any()


def test_randint_scale_and_bias() -> None:
    def values(shape: tuple[int, ...], dt: InfiniDtype, mode: str, **options: object) -> object:
        return TestTensor(shape, None, dt, CPU, mode=mode, **options).logical_array().tolist()

    assert set(values((200,), InfiniDtype.I32, "randint", randint_low=-2, randint_high=3)) == {-2, -1, 0, 1, 2}
    assert values((2,), F32, "ones", scale=0.1, bias=2) == [float(np.float32(2.1))] * 2
    assert values((2,), InfiniDtype.I64, "ones", scale=2**62, bias=-1) == [2**62 - 1] * 2
    assert values((1,), InfiniDtype.C32, "zeros", bias=1 + 2j) == [1 + 2j]
    assert values((), InfiniDtype.I64, "ones", scale=2.0) == 2


@pytest.mark.parametrize("mode", ["random", "randint"])
def test_integer_bounds_hold_in_both_modes(mode: str) -> None:
    drawn = TestTensor((500,), None, InfiniDtype.I64, CPU, mode=mode, randint_low=2, randint_high=7).logical_array()
    assert set(drawn.tolist()) == {2, 3, 4, 5, 6}


def test_scalar_types_have_expected_ids() -> None:
    """Ids by the layout of vLLM's core/scalar_type.hpp: 4 bits at 8, a bias of 8 at 17, IEEE NaNs at 50."""
    four = scalar_types.uint4b8
    assert (four.size_bits, four.min(), four.max(), four.has_bias()) == (4, -8, 7, True)
    assert four.id == 4 << 8 | 8 << 17 | 1 << 50
    assert (scalar_types.int8.min(), scalar_types.int8.max(), scalar_types.int8.size_bits) == (-128, 127, 8)


def test_float8_mode_has_same_values_everywhere() -> None:
    eight, codes, wide = (
        TestTensor((50,), None, dt, CPU, mode="float8_e4m3fn", seed=2).logical_array()
        for dt in (InfiniDtype.F8, InfiniDtype.U8, F32)
    )
    assert eight.tobytes() == codes.tobytes()
    assert np.array_equal(widen(eight), wide)


@pytest.mark.parametrize("dt", DTYPES, ids=lambda dt: dt.name)
def test_float8_mode_values_fit_float8(dt: InfiniDtype) -> None:
    # Bytes get the bits of float8_e4m3fn.
    drawn = TestTensor((400,), None, dt, CPU, mode="float8_e4m3fn", seed=3).logical_array()
    is_complex = drawn.dtype.kind == "c"
    parts = np.concatenate([drawn.real, drawn.imag]) if is_complex else widen(drawn).astype(np.float64)
    assert np.unique(parts).size > (1 if dt is InfiniDtype.BOOL else 16)
    if dt in (InfiniDtype.BYTE, InfiniDtype.U8, InfiniDtype.I8):
        parts = widen(drawn.view(numpy_dtype(dtype_called("float8_e4m3fn")))).astype(np.float64)
    assert np.abs(parts).max() <= 448
    assert (widen(round_to(parts, dtype_called("float8_e4m3fn"))) == parts).all()


def test_manual_values_keep_bits_and_lists_round() -> None:
    values = np.array([[np.nan, -0.0], [np.inf, 1.5]], np.float32)
    tensor = TestTensor((2, 2), (1, 2), F32, CPU, mode="manual", set_tensor=values)
    assert tensor.logical_array().tobytes() == values.tobytes()
    rounded = TestTensor((2,), None, InfiniDtype.BF16, CPU, mode="manual", set_tensor=[1.00390625, 3]).logical_array()
    assert widen(rounded).tolist() == [1.0, 3.0], "a tie goes to even"
    repeated = TestTensor((3, 2), (1, 0), F32, CPU, mode="manual", set_tensor=values[:1, :1])
    assert np.isnan(repeated.logical_array()).all()


@pytest.mark.parametrize(
    ("shape", "dt", "options", "message"),
    [
        ((2,), F32, {"set_tensor": np.ones(3, np.float32)}, "values have the shape 3, expected 2"),
        ((2, 2), F32, {"strides": (0, 1), "set_tensor": SQUARE}, "differ between elements that share"),
        ((2,), InfiniDtype.U8, {"set_tensor": [1, 256]}, r"value at \[1\] is 256, expected a value from 0 to 255"),
        ((2,), InfiniDtype.I8, {"set_tensor": [1, 0.5]}, "is 0.5, expected an integer"),
        ((2,), F32, {"mode": "manual"}, "which needs values; pass set_tensor"),
        ((2,), F32, {"strides": (1, 1), "set_tensor": [1.0]}, "strides .* have 2 entries, expected 1"),
        ((2,), InfiniDtype.U8, {"mode": "ones", "bias": 255}, r"value at \[0\] is 256, expected a value from 0 to 255"),
        ((2,), InfiniDtype.I8, {"mode": "ones", "scale": 0.5}, r"is 0\.5, expected an integer to store as int8"),
        ((2,), InfiniDtype.BOOL, {"mode": "ones", "bias": 1}, "is 2, expected a value from 0 to 1"),
        ((4,), F32, {"strides": (-1,), "offset": 1}, "before the storage, expected an offset of at least 3"),
        ((4,), F32, {"mode": "randon"}, r"unknown mode 'randon'; did you mean 'random'\?"),
        ((4,), 99, {}, "unknown InfiniDtype '99'"),
        ((4,), 0, {}, "dtype is INVALID"),
    ],
)
def test_misfit_values_are_refused(shape: tuple[int, ...], dt: Any, options: dict[str, Any], message: str) -> None:
    options = {"mode": "manual", **options} if "set_tensor" in options else options
    error = UnknownName if message.startswith("unknown") else UsageError
    with pytest.raises(error, match=message):
        TestTensor(shape, options.pop("strides", None), dt, CPU, **options)


@pytest.mark.parametrize("dt", DTYPES, ids=lambda dt: dt.name)
def test_binary_file_is_the_storage(dt: InfiniDtype, tmp_path: Path) -> None:
    source = TestTensor((12,), None, dt, CPU, seed=5)
    file = tmp_path / "tensor.bin"
    file.write_bytes(source._memory.buffer.array.tobytes())
    tensor = TestTensor.from_binary(file, (3, 4), (4, 1), dt, CPU)
    assert tensor.mode == "binary"
    assert tensor.logical_array().tobytes() == source.logical_array().tobytes()
    with refusal(UsageError, "infiniop.bytes_but_should_have"):
        TestTensor.from_binary(file, (3, 5), None, dt, CPU)
    with pytest.raises(UsageError, match="cannot be read"):
        TestTensor.from_binary(tmp_path / "none.bin", (3, 4), None, dt, CPU)


def test_numpy_arrays_keep_negative_strides() -> None:
    base = np.arange(24, dtype=np.int16).reshape(4, 6)
    tensor = TestTensor.from_numpy(base[::-1, ::2], InfiniDtype.I16, CPU)
    assert tensor.strides == [-6, 2]
    assert tensor.logical_array().tolist() == base[::-1, ::2].tolist()
    expanded = TestTensor.from_numpy(np.broadcast_to(np.float32(2), (3, 2)), F32, CPU)
    assert expanded.is_broadcast()
    assert TestTensor.from_dlpack(base).dt is InfiniDtype.I16


def test_set_tensor_keeps_gaps_and_guards() -> None:
    tensor = TestTensor((2, 3), (5, 1), F32, CPU)
    tensor.set_tensor(np.full((2, 3), 4, np.float32))
    assert (tensor.actual_array() == 4).all()
    tensor.update_torch_tensor(np.full((2, 3), 8, np.float32))
    assert (tensor.logical_array() == 8).all()
    assert (tensor.actual_array() == 4).all()
    tensor.check_guards()


def test_workspace_is_filled_and_guarded() -> None:
    workspace = TestWorkspace(10, CPU)
    assert workspace.size().value == 10
    assert workspace.data() % 256 == 0
    assert workspace.tensor is not None
    assert workspace.tensor.logical_array().tolist() == [255] * 10
    region = workspace.tensor._memory.buffer.region
    region.memory[region.end] ^= 1
    with refusal(Fault, "infiniop.bytes_behind_the_end") as caught:
        workspace.check_guards()
    assert caught.value.reason is Reason.WORKSPACE
    empty = TestWorkspace(0, CPU)
    assert (empty.data(), empty.tensor, empty.size().value) == (None, None, 0)
    empty.check_guards()


def test_numpy_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> object:
        raise Unavailable("torch", "pip install torch")

    monkeypatch.setattr(torch_bridge, "loaded_torch", absent)
    tensor = TestTensor((2, 2), (-2, 1), InfiniDtype.BF16, CPU)
    assert tensor.data()
    assert tensor.actual_array().dtype == numpy_dtype(element_of(InfiniDtype.BF16))
    with pytest.raises(Unavailable, match=r"pip install torch"):
        tensor.torch_tensor()


@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
def test_tensor_ends_at_guard_page() -> None:
    tensor = TestTensor((3, 5), None, InfiniDtype.I16, CPU, placement=Placement.PAGES_END)
    assert (tensor.data() + 30) % mmap.PAGESIZE == 0
    tensor.check_unchanged()
    shifted = TestTensor((3,), None, F32, CPU, alignment=256, shift=1)
    assert shifted.data() % 256 == 4


@pytest.mark.torch
class TestWithTorch:
    @pytest.mark.parametrize("dt", [dt for dt in DTYPES if dt is not InfiniDtype.C16], ids=lambda dt: dt.name)
    def test_torch_sees_the_same_bits(self, dt: InfiniDtype) -> None:
        for shape, strides in LAYOUTS:
            tensor = TestTensor(shape, strides, dt, CPU, mode="random")
            logical, actual = tensor.torch_tensor(), tensor.actual_tensor()
            assert tuple(logical.shape) == tuple(actual.shape) == tuple(shape)
            assert logical.dtype == actual.dtype
            again = TestTensor.from_torch(actual, dt, CPU)
            assert again.logical_array().tobytes() == tensor.logical_array().tobytes()

    def test_logical_tensor_is_separate_from_memory(self) -> None:
        tensor = TestTensor((2, 3), (1, 2), F32, CPU, mode="zeros")
        tensor.torch_tensor().fill_(3)
        assert tensor.torch_tensor().sum() == 18
        assert (tensor.actual_array() == 0).all()
        tensor.actual_tensor().fill_(5)
        assert (tensor.actual_array() == 5).all()

    def test_expanded_tensor_keeps_strides(self) -> None:
        import torch

        tensor = TestTensor.from_torch(torch.arange(3.0).expand(4, 3), F32, CPU)
        assert tensor.strides == [0, 1]
        assert torch.equal(tensor.torch_tensor(), torch.arange(3.0).expand(4, 3))
        assert torch.equal(TestTensor.from_dlpack(torch.arange(3)).torch_tensor(), torch.arange(3))

    def test_strides_are_kept_for_every_dtype(self) -> None:
        import torch

        for name in ("float32", "bfloat16", "float8_e4m3fn"):
            values = torch.zeros(3, 2, dtype=getattr(torch, name)).t()
            assert TestTensor.from_torch(values, values.dtype, CPU).strides == [1, 2]
            assert TestTensor.from_dlpack(values).strides == [1, 2]

    def test_other_dtype_is_converted(self) -> None:
        import torch

        halves = TestTensor.from_torch(torch.tensor([1.00390625, 3.0]), InfiniDtype.BF16, CPU)
        assert torch.equal(halves.torch_tensor(), torch.tensor([1.0, 3.0], dtype=torch.bfloat16))
        whole = TestTensor((2,), None, InfiniDtype.I32, CPU, mode="manual", set_tensor=torch.tensor([1.75, -2.5]))
        assert whole.torch_tensor().tolist() == [1, -2], "as torch converts"
        values = np.array([1.00390625, 3.0])
        rounded = TestTensor((2,), None, InfiniDtype.BF16, CPU, mode="manual", set_tensor=values)
        assert torch.equal(rounded.torch_tensor(), halves.torch_tensor())

    def test_logical_tensor_is_in_torch_memory(self) -> None:
        import torch

        tensor = TestTensor((2, 3), None, F32, CPU, mode="ones")
        tensor.torch_tensor().mul_(2)
        assert tensor.actual_tensor().eq(1).all(), "what C gets is another memory"
        assert (tensor.logical_array() == 2).all()
        tensor.torch_tensor().set_(torch.arange(4.0).untyped_storage(), 0, (4,), (1,))
        assert tensor._torch_tensor.tolist() == [0, 1, 2, 3]
        assert tensor._data_tensor.data_ptr() == tensor.data()

    def test_c16_has_no_torch_tensor(self) -> None:
        with pytest.raises(UsageError, match="C16 is two float8"):
            TestTensor((2,), None, InfiniDtype.C16, CPU).torch_tensor()
