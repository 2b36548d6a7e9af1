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
from optest.spec import DTYPES, Fault, Reason, format_shape


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock ``directory`` against other processes within the block; the system unlocks it if this process dies."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_tensor(file: TensorFile, path: Path, array: Array) -> None:
    """Write ``array`` in the file's dtype; raise Fault BAD_CASE if a value does not exist in it, or writing fails."""
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
    """Remove an earlier run's file and create its directory; raise Fault BAD_CASE if that fails."""
    try:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fault(Reason.BAD_CASE, f"the old file of {file.tensor} cannot be removed: {error}") from error


def read_tensor(file: TensorFile, path: Path) -> Array:
    """Return the tensor in a file, which must hold exactly the elements of ``file``.

    Raises:
        Fault: MISSING_OUTPUT without a regular file, SHAPE for another number of bytes, DTYPE for a byte that is no
            element of the dtype.
    """
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "was not written"
        raise Fault(Reason.MISSING_OUTPUT, f"{file.tensor}: {path} {problem}", details={"path": str(path)})
    size = path.stat().st_size
    if size != file.nbytes:
        count, kind = file.spec.elements, file.dtype.kind
        shape = format_shape(file.spec.shape)
        alike = [f"{x}[{shape}]" for x in DTYPES if x.kind is kind and x.itemsize_bytes * count == size]
        fitting = f" (as of {' or '.join(alike[:2])})" if alike else ""
        elements = f"{round(size / file.dtype.itemsize_bytes, 2):.15g} elements, not {count}"
        message = (
            f"{file.tensor}: {path} has {size} bytes{fitting}, expected {file.nbytes} for {file.dtype}[{shape}]; "
            f"it is {'too short' if size < file.nbytes else 'too long'}: {elements}"
        )
        raise Fault(Reason.SHAPE, message, details={"path": str(path), "bytes": size})
    data = np.fromfile(path, dtype=np.uint8)
    _require_valid_bytes(file, path, data)
    return data.view(numpy_dtype(file.dtype)).reshape(file.spec.shape)


# The valid bytes of dtypes that do not fill their byte; the upper half of int4 may be its sign.
_NARROW = {
    "bool": range(2),
    "uint4": range(16),
    "int4": (*range(16), *range(0xF8, 0x100)),
}


def _require_valid_bytes(file: TensorFile, path: Path, data: Array) -> None:
    known = _NARROW.get(file.dtype.name)
    if known is None:
        return
    is_known = np.zeros(256, dtype=np.bool_)
    is_known[list(known)] = True
    wrong = ~is_known[data]
    if wrong.any():
        first = int(wrong.argmax())
        count = f"{int(wrong.sum())} of {data.size} bytes that are no {file.dtype}"
        message = f"{file.tensor}: {path} has {count}; the first is {data[first]:#04x}, of element {first}"
        raise Fault(Reason.DTYPE, message, details={"path": str(path)})
