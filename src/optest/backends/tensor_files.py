"""Tensors in raw binary files: little-endian, row-major, no header; 4-bit types take a whole byte each."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends.command_config import TensorFile
from optest.numerics import dtype_of, numpy_dtype, round_to, widen
from optest.spec import Fault, Reason

__all__ = [
    "GoldenState",
    "Origin",
    "golden_state",
    "key_file",
    "locked",
    "read_golden",
    "read_tensor",
    "remove_file",
    "write_golden",
    "write_tensor",
]

Array = np.ndarray[Any, Any]


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
        array = _converted(file, array)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as stream:  # in place: twice as fast as a new file
            stream.write(data.data)
            stream.truncate()
    except OSError as error:
        raise Fault(Reason.BAD_CASE, f"{file.tensor} cannot be written: {error}") from error


def _converted(file: TensorFile, array: Array) -> Array:
    try:
        return round_to(widen(array), file.dtype)
    except (ValueError, TypeError) as error:
        raise Fault(Reason.BAD_CASE, f"{file.tensor} cannot be written as {file.dtype}: {error}") from error


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
        raise Fault(Reason.SHAPE, _wrong_size(file, path, size), details={"path": str(path), "bytes": size})
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


def _wrong_size(file: TensorFile, path: Path, size: int) -> str:
    itemsize = file.dtype.itemsize_bytes
    held = f"{size // itemsize} elements" if size % itemsize == 0 else f"{size / itemsize:.2f} elements"
    shape = "x".join(map(str, file.spec.shape)) or "scalar"
    return (
        f"{file.tensor}: {path} has {size} bytes, but should have {file.nbytes} for {file.dtype}[{shape}]; "
        f"it is {'too short' if size < file.nbytes else 'too long'}: {held} in place of {file.spec.elements}"
    )


class GoldenState(Enum):
    """What is known of a golden file; a ``.key`` file beside it names the case that it belongs to.

    The first word of a ``.key`` file is the case key. Those that optest writes have further ones: the reference that
    made the values, the digest of the golden file's bytes, and one of what the values follow from beside the key.
    """

    MISSING = "does not exist"
    STALE = "belongs to another case, seed or reference, or to other inputs"
    CHANGED = "is not what its .key file vouches for: its bytes have changed"
    UNVOUCHED = "has no .key file, so nothing shows that it belongs to these inputs"
    FRESH = "belongs to this case"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What golden values were made from: case key, reference, and a digest of the files that the key does not tell."""

    key: str
    reference: str
    outside: str = ""


def golden_state(path: Path, origin: Origin) -> GoldenState:
    if not path.is_file():
        return GoldenState.MISSING
    if not key_file(path).is_file():
        return GoldenState.UNVOUCHED
    vouched, made_by, digest, outside, *_ = (*key_file(path).read_text(encoding="utf-8").split(), "", "", "", "")
    if vouched != origin.key or (made_by and (made_by, outside) != (origin.reference, origin.outside)):
        return GoldenState.STALE
    return GoldenState.CHANGED if digest and digest != _digest_of(path) else GoldenState.FRESH


def read_golden(file: TensorFile, path: Path) -> Array:
    """Read expected values; floats in the file's dtype, which tells that they are rounded.

    Raises:
        Fault: BAD_CASE for a file of another size.
    """
    try:
        values = read_tensor(file, path)
    except Fault as fault:
        raise Fault(Reason.BAD_CASE, f"golden file of {fault.message}", details=fault.details) from None
    return values if file.dtype.is_inexact else widen(values)


def write_golden(file: TensorFile, path: Path, array: Array, origin: Origin) -> None:
    """Write expected values and, beside them, what they belong to."""
    write_tensor(file, path, array)
    words = f"{origin.key} {origin.reference} {_digest_of(path)} {origin.outside}".strip()
    key_file(path).write_text(f"{words}\n", encoding="utf-8")


def _digest_of(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def key_file(path: Path) -> Path:
    """What vouches for a golden file, beside it."""
    return path.with_name(f"{path.name}.key")
