"""The tensors of one execution in a ``.npz`` that NumPy alone can read; docs/reports.md describes it for users.

Element types that NumPy lacks are saved as unsigned integers of their bits, and the entry's name ends with the type:
``input0.bfloat16``. A tensor that is not dense is saved by its one-dimensional storage, gaps included:
``input0.storage``. The entry ``meta`` is JSON with dtype, shape, strides and offset of each tensor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from optest.errors import UsageError
from optest.numerics import bits, dtype_of, numpy_dtype, widen
from optest.numerics.layout import storage_of, view
from optest.spec import TensorSpec, contiguous_strides, dtype

__all__ = ["Archive", "element_error", "entry_name", "read_archive", "spec_of", "write_archive"]

Array = np.ndarray[Any, Any]
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Tensors by name (``input0``, ``output0.expected``, ``output0.actual``, ``output0.error``), and what is known.

    ``offsets`` says how many elements of an input's storage lie before its first one.
    """

    tensors: Mapping[str, Array]
    offsets: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def write_archive(path: Path, archive: Archive) -> None:
    """Write ``path`` in one piece.

    Raises:
        UsageError: if it cannot be written.
    """
    entries: dict[str, Array] = {}
    described: dict[str, Any] = {}
    for name, tensor in archive.tensors.items():
        spec = spec_of(tensor, archive.offsets.get(name, 0))
        described[name] = _described(spec)
        stored = tensor if spec.is_dense else storage_of(tensor, spec)
        entries[entry_name(name, spec)] = _as_bits(np.ascontiguousarray(stored).reshape(stored.shape))
    meta = {**archive.facts, "schema_version": SCHEMA_VERSION, "tensors": described}
    entries["meta"] = np.array(json.dumps(meta))
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, **entries)  # type: ignore[arg-type]
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def read_archive(path: Path) -> Archive:
    """Read what :func:`write_archive` wrote: bit for bit, in the same element types and strides.

    Raises:
        UsageError: if it is no such file.
    """
    try:
        with np.load(path) as saved:
            meta = json.loads(str(saved["meta"]))
            specs = {name: _spec(each) for name, each in meta.pop("tensors").items()}
            tensors = {name: _placed(saved[entry_name(name, spec)], spec) for name, spec in specs.items()}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (BadZipFile, KeyError, ValueError) as error:
        raise UsageError(f"{path} is not a file of saved tensors: {error}") from None
    return Archive(tensors=tensors, offsets={name: spec.offset for name, spec in specs.items()}, facts=meta)


def entry_name(name: str, spec: TensorSpec) -> str:
    """The name of the tensor's entry: ``input0``, ``input0.bfloat16``, ``input0.storage.bfloat16``."""
    storage = "" if spec.is_dense else ".storage"
    tag = "" if numpy_dtype(spec.dtype).isbuiltin == 1 else f".{spec.dtype.name}"
    return f"{name}{storage}{tag}"


def spec_of(tensor: Array, offset: int = 0) -> TensorSpec:
    """The layout that an array has, at ``offset`` or as far into its storage as negative strides need."""
    entry = dtype_of(tensor.dtype)
    strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
    if tensor.size == 0 or (not offset and strides == contiguous_strides(tensor.shape)):
        return TensorSpec(dtype=entry, shape=tensor.shape)
    before = -sum(min(0, (size - 1) * stride) for size, stride in zip(tensor.shape, strides, strict=True))
    return TensorSpec(dtype=entry, shape=tensor.shape, strides=strides, offset=max(offset, before))


def element_error(actual: Array, expected: Array) -> Array | None:
    """``|actual - expected|`` of every element as float64, None for other shapes; equal infinities and NaN give 0."""
    if actual.shape != expected.shape:
        return None
    one, other = (_floating(widen(np.ascontiguousarray(each))) for each in (actual, expected))
    with np.errstate(all="ignore"):
        error = np.abs(one - other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    # What is contiguous has one dimension at least; a scalar has none.
    errors: Array = np.asarray(np.where(same, 0.0, error), dtype=np.float64).reshape(actual.shape)
    return errors


def _floating(values: Array) -> Array:
    return values if values.dtype.kind in "fc" else values.astype(np.float64)


def _as_bits(stored: Array) -> Array:
    return stored if stored.dtype.isbuiltin == 1 else bits(stored)


def _described(spec: TensorSpec) -> dict[str, Any]:
    description: dict[str, Any] = {"dtype": spec.dtype.name, "shape": list(spec.shape)}
    return description if spec.is_dense else {**description, "strides": list(spec.strides or ()), "offset": spec.offset}


def _spec(described: Mapping[str, Any]) -> TensorSpec:
    strides: Sequence[int] | None = described.get("strides")
    return TensorSpec(
        dtype=dtype(described["dtype"]),
        shape=tuple(described["shape"]),
        strides=None if strides is None else tuple(strides),
        offset=described.get("offset", 0),
    )


def _placed(stored: Array, spec: TensorSpec) -> Array:
    elements = stored if stored.dtype == numpy_dtype(spec.dtype) else stored.view(numpy_dtype(spec.dtype))
    return elements.reshape(spec.shape) if spec.is_dense else view(elements, spec)
