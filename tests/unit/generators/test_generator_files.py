"""Inputs from files, every way in which a file can be wrong, and the writers of tensors."""

from __future__ import annotations

import io
import struct
import sys
import tracemalloc
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import refusal

from optest.backends.command_config import TensorFile
from optest.backends.tensor_files import read_tensor, write_tensor
from optest.core.kept_tensors import Archive, read_archive, write_archive
from optest.errors import UnknownName, UsageError
from optest.generators import RandomTensorGenerator, numpy_generator, resolve_generator
from optest.generators.files import save_tensors, tensors_in_file
from optest.numerics import bits, dtype_of, numpy_dtype
from optest.spec import DTYPES, Argument, DType, Fault, Fill, OperatorDescriptor, Reason, TensorSpec, TestCase, dtype


def read(path: Path | str, name: str, shape: tuple[int, ...], key: str | None = None, **more: Any) -> np.ndarray:
    """Return the tensor that a case has with this fill; ``more`` are its layout and ``base_dir``."""
    base_dir = more.pop("base_dir", None)
    spec = TensorSpec(dtype=dtype(name), shape=shape, **more)
    parameters = {"path": str(path)} | ({"key": key} if key else {})
    argument = Argument(name="a", path="input0", spec=spec, fill=Fill(kind="file", parameters=parameters))
    descriptor = OperatorDescriptor(name="op", signature="a -> out")
    case = TestCase(descriptor=descriptor, inputs=(argument,), **({"base_dir": base_dir} if base_dir else {}))
    (array,), _ = RandomTensorGenerator().generate(case)
    return array


def refused(path: Path, name: str, shape: tuple[int, ...], words: str, key: str | None = None) -> None:
    with pytest.raises(Fault, match=words) as caught:
        read(path, name, shape, key)
    assert caught.value.reason is Reason.BAD_CASE
    assert str(path) in caught.value.message


def values_of(entry: DType) -> np.ndarray:
    return np.array([[0, 1, 1], [1, 0, 1]]).astype(numpy_dtype(entry))


@pytest.mark.parametrize("entry", DTYPES, ids=str)
def test_npy_npz_and_bin_of_every_type(entry: DType, tmp_path: Path) -> None:
    values = values_of(entry)
    saved = values.view("V1") if entry.name == "float8_e5m2" else values  # as `f1`, which NumPy cannot read again
    np.save(tmp_path / "a.npy", saved)
    np.savez(tmp_path / "a.npz", saved)
    values.tofile(tmp_path / "a.bin")
    for name in ("a.npy", "a.npz", "a.bin"):
        got = read(tmp_path / name, entry.name, (2, 3))
        assert got.dtype == values.dtype
        assert (bits(got) == bits(values)).all()
        assert got.flags.writeable


def test_layouts_byte_orders_and_relative_paths(tmp_path: Path) -> None:
    np.arange(6, dtype=np.float32).tofile(tmp_path / "a.bin")
    got = read("a.bin", "float32", (2, 3), strides=(1, 2), offset=1, base_dir=str(tmp_path))
    assert (got.tolist(), got.strides) == ([[0, 1, 2], [3, 4, 5]], (4, 8))
    np.save(tmp_path / "a.npy", np.array([1.5, 2], ">f4"))
    assert read(tmp_path / "a.npy", "float32", (2,)).tolist() == [1.5, 2]


def test_bad_npy(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((2, 3)))
    refused(path, "float32", (2, 3), "holds float64, expected float32")
    refused(path, "float64", (3, 2), "has the shape 2x3, expected 3x2")
    refused(path, "float64", (2, 3), "without a name", key="w")
    whole = path.read_bytes()
    for damaged in (b"", b"garbage", whole[:40], whole[:-8]):
        path.write_bytes(damaged)
        refused(path, "float64", (2, 3), "cannot be read")
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    refused(path, "float64", (1,), "cannot be read")
    np.save(path, np.zeros(2, numpy_dtype(dtype("bfloat16"))))  # NumPy writes it as void
    refused(path, "float16", (2,), "expected float16")
    np.save(path, np.zeros(2, np.float16))
    refused(path, "bfloat16", (2,), "holds float16, expected bfloat16")


def test_bad_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, weight=np.ones(2, np.float32), bias=np.zeros(2, np.float32))
    assert read(path, "float32", (2,), key="weight").tolist() == [1, 1]
    refused(path, "float32", (2,), "holds 2 tensors .*add key")
    with refusal(UnknownName, "generators.did_you_mean_weight"):
        read(path, "float32", (2,), key="weigth")
    path.write_bytes(path.read_bytes()[:60])
    refused(path, "float32", (2,), "cannot be read")
    np.save(tmp_path / "plain.npy", np.ones(2, np.float32))
    (tmp_path / "plain.npy").rename(path)
    refused(path, "float32", (2,), "not a zip file")


def test_files_have_the_format_of_their_name(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(20))
    refused(path, "float32", (2, 3), r"has 20 bytes, expected 24 for float32\[2x3\]")
    refused(path, "float32", (4,), "has 20 bytes, expected 16")
    path.write_bytes(bytes([0, 1, 2]))
    refused(path, "bool", (3,), "holds the byte 2")
    refused(path, "uint8", (3,), "without names", key="x")
    refused(tmp_path / "none.bin", "float32", (1,), "does not exist")
    (tmp_path / "a.txt").write_text("1")
    refused(tmp_path / "a.txt", "float32", (1,), "expected .npy")
    (tmp_path / "folder.npy").mkdir()
    refused(tmp_path / "folder.npy", "float32", (1,), "does not exist")


def safetensors_bytes(header: str, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header.encode() + data


def test_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "a.safetensors"
    weight = '"w":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}'
    header = "{" + weight + ',"s":{"dtype":"F8_E4M3","shape":[],"data_offsets":[4,5]}}'
    path.write_bytes(safetensors_bytes(header, bytes([0x80, 0x3F, 0x00, 0x40, 0x38])))
    assert read(path, "bfloat16", (2, 1), key="w").tolist() == [[1], [2]]
    assert read(path, "float8_e4m3fn", (), key="s") == 1
    refused(path, "bfloat16", (2, 1), "holds 2 tensors")
    refused(path, "float16", (2, 1), "holds bfloat16, expected float16", key="w")
    refused(path, "bfloat16", (2,), "has the shape 2x1", key="w")
    with pytest.raises(UnknownName):
        read(path, "bfloat16", (2, 1), key="v")
    for damaged in (b"", path.read_bytes()[:-1], safetensors_bytes("{", b"")):
        path.write_bytes(damaged)
        refused(path, "bfloat16", (2, 1), "is not a valid safetensors file", key="w")


@pytest.mark.torch
def test_pt(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "a.pt"
    for entry in DTYPES:
        if not hasattr(torch, entry.name) or entry.bits == 4:
            continue
        values = values_of(entry)
        held = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, entry.name))
        torch.save(held, path)
        assert (bits(read(path, entry.name, (2, 3))) == bits(values)).all()
    torch.save(torch.arange(6.0).reshape(2, 3).T, path)
    assert read(path, "float32", (3, 2)).tolist() == [[0, 3], [1, 4], [2, 5]]
    refused(path, "float64", (3, 2), "holds float32, expected float64")
    refused(path, "float32", (2, 3), "has the shape 3x2")
    refused(path, "float32", (3, 2), "without a name", key="w")
    torch.save({"w": torch.ones(2), "b": torch.zeros(2), "epoch": 3}, path)
    assert read(path, "float32", (2,), key="w").tolist() == [1, 1]
    refused(path, "float32", (2,), "holds 2 tensors")
    with pytest.raises(UnknownName):
        read(path, "float32", (2,), key="epoch")
    torch.save([1, 2], path)
    refused(path, "float32", (2,), "holds a list")
    for damaged in (b"", b"garbage", path.read_bytes()[:-30]):
        path.write_bytes(damaged)
        refused(path, "float32", (2,), "cannot be read")


class Payload:
    """What an attacker would pickle: unpickling it would write a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


@pytest.mark.torch
def test_pt_never_runs_code(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path, proof = tmp_path / "evil.pt", tmp_path / "proof"
    torch.save({"w": Payload(str(proof))}, path)
    refused(path, "float32", (2,), "weights_only")
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists(), "the payload is harmless, so the test above shows nothing"


@pytest.mark.parametrize("name", ["x.npy", "x"])
@pytest.mark.parametrize("content", [bytes(1 << 25), None])
def test_an_archive_that_grows_is_not_expanded(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is None:
        large = io.BytesIO()
        np.save(large, np.zeros(1 << 25, np.uint8))
        content = large.getvalue()
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    tracemalloc.start()
    try:
        refused(tmp_path / "a.npz", "float32", (4,), "bytes in x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"abc", bytes(500), b"\x93NUMPY\x01\x00\xff\xff"])
def test_a_member_that_is_no_array(tmp_path: Path, content: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    refused(tmp_path / "a.npz", "float32", (4,), "cannot be read")
    (tmp_path / "a.npy").write_bytes(content)
    refused(tmp_path / "a.npy", "float32", (4,), "cannot be read")


def test_a_shape_of_a_header_takes_no_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4, np.float32))
    huge = (
        (tmp_path / "a.npy")
        .read_bytes()
        .replace(b"'shape': (4,)", b"'shape': (999999999999999,)")
        .replace(b" " * 14, b"", 1)
    )
    (tmp_path / "a.npy").write_bytes(huge)
    refused(tmp_path / "a.npy", "float32", (4,), "999999999999999")


_BASE = (np.arange(24) * 7 % 5 % 2).reshape(4, 6)  # values that every dtype holds; no two rows are the same
_LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "row-major": lambda base: base,
    "transposed": lambda base: base.T,
    "Fortran order": np.asfortranarray,
    "sliced": lambda base: base[1:, ::2],
    "negative strides": lambda base: base[::-1, ::-2],
    "broadcast": lambda base: np.broadcast_to(base[:1], (4, 6)),
    "three dimensions, permuted": lambda base: base.reshape(2, 3, 4).transpose(2, 0, 1),
    "0-d": lambda base: base[1, 1, ...],
    "empty": lambda base: base[:0].T,
    "size 1": lambda base: base[1:2, 1:2].T,
}


def _through_safetensors(array: np.ndarray, folder: Path) -> np.ndarray:
    pytest.importorskip("safetensors")
    save_tensors({"a": array}, folder / "a.safetensors", "case")
    return tensors_in_file(folder / "a.safetensors")[0]["a"]


def _through_archive(array: np.ndarray, folder: Path) -> np.ndarray:
    write_archive(folder / "a.npz", Archive(tensors={"a": array}))
    return read_archive(folder / "a.npz").tensors["a"]


def _through_command_file(array: np.ndarray, folder: Path) -> np.ndarray:
    entry = dtype_of(array.dtype)
    file = TensorFile(tensor="input0", path="a.bin", dtype=entry, spec=TensorSpec(dtype=entry, shape=array.shape))
    write_tensor(file, folder / "a.bin", array)
    assert (bits(read(folder / "a.bin", entry.name, array.shape)) == bits(array)).all()  # fill: {kind: file}
    return read_tensor(file, folder / "a.bin")


_WRITERS = {"safetensors": _through_safetensors, "npz": _through_archive, "bin": _through_command_file}
_NOT_IN_SAFETENSORS = ("int4", "uint4", "complex128")


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("writer", _WRITERS)
def test_every_writer_keeps_every_layout(writer: str, layout: str, tmp_path: Path) -> None:
    for entry in DTYPES:
        if writer == "safetensors" and entry.name in _NOT_IN_SAFETENSORS:
            continue
        array = _LAYOUTS[layout](_BASE.astype(numpy_dtype(entry)))
        got = _WRITERS[writer](array, tmp_path)
        assert (got.dtype, got.shape) == (array.dtype, array.shape), entry
        assert (bits(got) == bits(array)).all(), entry


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_safetensors_are_written_in_the_order_of_this_machine(layout: str, tmp_path: Path) -> None:
    for name in ("int16", "bfloat16", "float16", "float32", "float64", "complex64"):
        native = _LAYOUTS[layout](_BASE.astype(numpy_dtype(dtype(name))))
        got = _through_safetensors(native.astype(native.dtype.newbyteorder(">")), tmp_path)
        assert got.shape == native.shape
        assert (bits(got) == bits(native)).all(), name


def test_writers_refuse_what_they_lack(tmp_path: Path) -> None:
    for writer in (_through_archive, _through_command_file):
        with pytest.raises(UnknownName):
            writer(np.arange(3, dtype=">f4"), tmp_path)
        assert not list(tmp_path.iterdir())
    pytest.importorskip("safetensors")
    for name in _NOT_IN_SAFETENSORS:
        with pytest.raises(UsageError, match=rf"weight.*{name}"):
            save_tensors({"weight": values_of(dtype(name))}, tmp_path / "a.safetensors", "case")
    assert not list(tmp_path.iterdir())


CASE = TestCase(descriptor=OperatorDescriptor(name="op"), inputs=())


class Constant:
    def generate(self, case: TestCase, rng: np.random.Generator) -> tuple[list[np.ndarray], None]:
        return [rng.standard_normal(3)], None


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("generators_of_a_user")
    made.Constant = Constant
    made.instance = Constant()
    made.function = lambda case, rng: ([rng.standard_normal(3)], None)
    made.number = 3
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


@pytest.mark.parametrize("name", ["Constant", "instance", "function"])
def test_class_instance_and_function(module: types.ModuleType, name: str) -> None:
    generator = resolve_generator(f"{module.__name__}:{name}")
    (array,), expected = generator.generate(CASE, numpy_generator(CASE))
    assert (array.shape, expected) == ((3,), None)
    assert isinstance(resolve_generator(None), RandomTensorGenerator)


def test_generators_are_found_and_depend_on_key(module: types.ModuleType) -> None:
    with refusal(UsageError, "generators.is_int_but_should"):
        resolve_generator(f"{module.__name__}:number")
    with refusal(UsageError, "generators.did_you_mean_function"):
        resolve_generator(f"{module.__name__}:funktion")
    first = numpy_generator(CASE).integers(2**60, size=4)
    assert (first == numpy_generator(CASE).integers(2**60, size=4)).all()
    other = TestCase(descriptor=CASE.descriptor, inputs=(), seed=1)
    assert not (first == numpy_generator(other).integers(2**60, size=4)).any()
