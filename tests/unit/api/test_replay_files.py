"""Saved tensors: bit for bit through the file, in every element type and layout, and readable by NumPy alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.api.saving import file_stem, load_saved
from optest.core.kept_tensors import Archive, element_error, read_archive, write_archive
from optest.errors import UsageError
from optest.numerics import bits, numpy_dtype, view
from optest.spec import DTYPES, TensorSpec, dtype


def of_bits(spec: TensorSpec, seed: int = 0) -> np.ndarray[Any, Any]:
    """A tensor of arbitrary bits, NaN payloads included, with arbitrary gaps."""
    kind = numpy_dtype(spec.dtype)
    random = np.random.default_rng(seed)
    storage = random.integers(0, 256, max(spec.storage_elements, 1) * kind.itemsize, np.uint8)
    if spec.dtype.name == "bool":
        storage %= 2
    if spec.dtype.bits == 4:
        storage %= 16
    return view(storage.view(kind)[: max(spec.storage_elements, 1)], spec)


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and bool((bits(one) == bits(other)).all())


LAYOUTS = [
    {"shape": (3, 4)},
    {"shape": ()},
    {"shape": (0, 3)},
    {"shape": (3, 4), "strides": (1, 3)},
    {"shape": (3, 4), "strides": (9, 2), "offset": 5},
    {"shape": (4,), "strides": (-2,), "offset": 7},
    {"shape": (3, 4), "strides": (0, 1)},
    {"shape": (5,), "offset": 3},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("entry", DTYPES, ids=lambda entry: entry.name)
def test_tensors_survive_bit_for_bit(entry: Any, layout: dict[str, Any], tmp_path: Path) -> None:
    spec = TensorSpec(dtype=entry, **layout)
    tensor = of_bits(spec)
    write_archive(tmp_path / "t.npz", Archive(tensors={"input0": tensor}, offsets={"input0": spec.offset}))
    found = read_archive(tmp_path / "t.npz")
    assert same(found.tensors["input0"], tensor)
    if tensor.size:
        strides = [step for step, size in zip(tensor.strides, tensor.shape, strict=True) if size > 1]
        assert [
            step for step, size in zip(found.tensors["input0"].strides, tensor.shape, strict=True) if size > 1
        ] == strides


@given(
    st.lists(st.integers(1, 4), max_size=3).flatmap(
        lambda shape: st.tuples(
            st.just(tuple(shape)),
            st.lists(st.integers(-5, 5), min_size=len(shape), max_size=len(shape)).map(tuple),
            st.integers(0, 5),
        )
    )
)
def test_any_layout_is_rebuilt_with_its_gaps(tmp_path_factory: Any, layout: tuple[Any, ...]) -> None:
    shape, strides, more = layout
    before = -sum(min(0, (size - 1) * step) for size, step in zip(shape, strides, strict=True))
    spec = TensorSpec(dtype=dtype("bfloat16"), shape=shape, strides=strides, offset=before + more)
    tensor = of_bits(spec)
    path = tmp_path_factory.getbasetemp() / "layout.npz"
    write_archive(path, Archive(tensors={"input0": tensor}, offsets={"input0": spec.offset}))
    found = read_archive(path).tensors["input0"]
    assert same(found, tensor)
    if not spec.is_dense:
        with np.load(path) as saved:
            storage = saved["input0.storage.bfloat16"]
        low, high = spec.lowest_index, spec.storage_elements
        assert storage.size == high
        assert (storage[low:high] == tensor.base.view(np.uint16)[low:high]).all()


def test_numpy_alone_reads_it(tmp_path: Path) -> None:
    """The lines of docs/reports.md."""
    tensor = of_bits(TensorSpec(dtype=dtype("bfloat16"), shape=(3, 4)))
    strided = of_bits(TensorSpec(dtype=dtype("float32"), shape=(3, 4), strides=(9, 2), offset=5))
    archive = Archive(tensors={"input0": tensor, "input1": strided}, offsets={"input1": 5}, facts={"id": "a"})
    write_archive(tmp_path / "t.npz", archive)
    saved = np.load(tmp_path / "t.npz")  # allow_pickle is False
    assert sorted(saved.files) == ["input0.bfloat16", "input1.storage", "meta"]
    as_float = (saved["input0.bfloat16"].astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(as_float, tensor.astype(np.float32), equal_nan=True)
    meta = json.loads(str(saved["meta"]))
    assert meta["id"] == "a"
    layout = meta["tensors"]["input1"]
    storage = saved["input1.storage"]
    rebuilt = np.lib.stride_tricks.as_strided(
        storage[layout["offset"] :], layout["shape"], [4 * step for step in layout["strides"]]
    )
    assert (rebuilt.view(np.uint32) == strided.view(np.uint32)).all()


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no")
    np.savez(tmp_path / "other.npz", x=np.zeros(1))
    for name in ("text.npz", "other.npz", "missing.npz"):
        with pytest.raises(UsageError, match=name):
            load_saved(tmp_path / name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.npz", "text.npz"]


def test_errors_of_elements() -> None:
    actual = np.array([1.5, np.nan, np.nan, np.inf, np.inf, 2.0], np.float32)
    expected = np.array([1.0, np.nan, 0.0, np.inf, -np.inf, 2.0])
    error = element_error(actual, expected)
    assert error is not None
    np.testing.assert_array_equal(error, [0.5, 0, np.nan, 0, np.inf, 0])
    assert element_error(actual[:2], expected) is None
    as_bytes = element_error(np.array([250, 3], np.uint8), np.array([3, 250], np.uint8))
    assert as_bytes is not None
    assert as_bytes.tolist() == [247.0, 247.0]
    as_bool = element_error(np.array([True]), np.array([False]))
    assert as_bool is not None
    assert as_bool.tolist() == [1.0]


def test_names_of_files_are_legal_and_differ() -> None:
    taken: set[str] = set()
    stems = [file_stem(name, taken) for name in ("a/b: c", "A/b: c", "a-b-c", "..", "../../x", "ü", "x" * 200)]
    assert stems[:3] == ["a-b-c", "A-b-c-2", "a-b-c-3"]
    assert len({stem.casefold() for stem in stems}) == len(stems)
    assert all("/" not in stem and stem.strip(".") and len(stem) <= 90 for stem in stems)
