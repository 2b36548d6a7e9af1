"""Tensors in raw binary files: little-endian, row-major, no header; 4-bit types take a whole byte each."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from optest.backends.command_config import TensorFile
from optest.numerics import Array, dtype_of, numpy_dtype, round_to, widen
from optest.spec import DTYPES, Fault, Reason


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold ``directory`` for this process alone; the kernel lets go of it if the process dies."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_tensor(file: TensorFile, path: Path, array: Array) -> None:
    """Write ``array`` in the file's dtype over what is there.

    Raises:
        Fault: BAD_CASE if a value does not exist in that dtype, or the file cannot be written.
    """
    if dtype_of(array.dtype) is not file.dtype:
        try:
            array = round_to(widen(array), file.dtype)
        except (ValueError, TypeError) as error:
            raise Fault(Reason.BAD_CASE, f"{file.tensor} cannot be written as {file.dtype}: {error}") from error
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as stream:  # in place: twice as fast as a new file
            stream.write(data.data)
            stream.truncate()
    except OSError as error:
        raise Fault(Reason.BAD_CASE, f"{file.tensor} cannot be written: {error}") from error


def remove_file(file: TensorFile, path: Path) -> None:
    """Remove what an earlier run left and make the directory, so that only this run can have made the file.

    Raises:
        Fault: BAD_CASE if that is not possible.
    """
    try:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fault(Reason.BAD_CASE, f"the old file of {file.tensor} cannot be removed: {error}") from error


def read_tensor(file: TensorFile, path: Path) -> Array:
    """Read a file that should hold exactly the elements of ``file``.

    Raises:
        Fault: MISSING_OUTPUT without such a file, SHAPE for another number of bytes, DTYPE for a byte that is no
            element.
    """
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "was not written"
        raise Fault(Reason.MISSING_OUTPUT, f"{file.tensor}: {path} {what}", details={"path": str(path)})
    size = path.stat().st_size
    if size != file.nbytes:
        count, kind = file.spec.elements, file.dtype.kind
        shape = "x".join(map(str, file.spec.shape)) or "scalar"
        alike = [f"{each}[{shape}]" for each in DTYPES if each.kind is kind and each.itemsize_bytes * count == size]
        of = f", as {' or '.join(alike[:2])} has," if alike else ","
        elements = f"{round(size / file.dtype.itemsize_bytes, 2):.15g} elements in place of {count}"
        message = (
            f"{file.tensor}: {path} has {size} bytes{of} but should have {file.nbytes} for {file.dtype}[{shape}]; "
            f"it is {'too short' if size < file.nbytes else 'too long'}: {elements}"
        )
        raise Fault(Reason.SHAPE, message, details={"path": str(path), "bytes": size})
    held = np.fromfile(path, dtype=np.uint8)
    _refuse_other_bytes(file, path, held)
    return held.view(numpy_dtype(file.dtype)).reshape(file.spec.shape)


_NARROW = {
    "bool": range(2),
    "uint4": range(16),
    "int4": (*range(16), *range(0xF8, 0x100)),
}
"""The bytes that stand for an element of a type that does not fill its byte; the upper half of int4 may be its sign."""


def _refuse_other_bytes(file: TensorFile, path: Path, held: Array) -> None:
    known = _NARROW.get(file.dtype.name)
    if known is None:
        return
    is_known = np.zeros(256, dtype=np.bool_)
    is_known[list(known)] = True
    wrong = ~is_known[held]
    if wrong.any():
        first = int(wrong.argmax())
        what = f"{int(wrong.sum())} of {held.size} bytes that are no {file.dtype}; the first is {held[first]:#04x}"
        raise Fault(Reason.DTYPE, f"{file.tensor}: {path} has {what}, of element {first}", details={"path": str(path)})
