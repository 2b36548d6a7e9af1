"""Tensors in files: .npy, .npz, .bin, .pt (weights only) and .safetensors, without pickle."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from os.path import isfile
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from optest.errors import Unavailable, UnknownName, UsageError
from optest.numerics import Array, byte_beyond_bool, numpy_dtype
from optest.spec import DType, Fault, Reason, TensorSpec, dtype, format_shape
from optest.store import require_regular, write_atomically


def read_tensor(path: str, key: str | None, spec: TensorSpec) -> Array:
    """Read a tensor of the shape and dtype of ``spec``; the suffix of ``path`` determines the format.

    ``key`` names one of several tensors. ``.bin`` has no header: its bytes are the elements, row-major and
    little-endian.

    Raises:
        Fault: BAD_CASE if the file is missing, damaged, or has another shape, dtype or format.
        UnknownName: for a key that is not in the file.
        Unavailable: if reading it needs a package that is not installed.
    """
    read = _READERS.get(Path(path).suffix.lower())
    if read is None:
        raise _bad(path, f"ends in {Path(path).suffix!r}, expected {', '.join(_READERS)}")
    if not isfile(path):
        raise _bad(path, "does not exist")
    try:
        array = read(path, key, spec)
    except UNREADABLE as error:
        raise _bad(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if array.shape != spec.shape:
        raise _bad(path, f"has the shape {format_shape(array.shape)}, expected {format_shape(spec.shape)}")
    return array


# NumPy parses the header of an .npy as Python, and allocates memory for the shape in it.
_UNREADABLE_HEADER = (SyntaxError, TokenError, OverflowError, MemoryError)
_UNREADABLE_ARCHIVE = (EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
# Exceptions of NumPy for a file that is damaged, or of another format.
UNREADABLE = (OSError, ValueError, *_UNREADABLE_HEADER, *_UNREADABLE_ARCHIVE)


def _bad(path: str, fault: str) -> Fault:
    return Fault(Reason.BAD_CASE, f"file {path} {fault}", details={"path": path})


# Dtypes that NumPy files store as raw bytes (`V2`, `V1`).
_RAW_IN_NUMPY = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2", "bfloat16")


def _read_npy(path: str, key: str | None, spec: TensorSpec) -> Array:
    if key is not None:
        raise _bad(path, f"holds one tensor without a name, but key is {key!r}; remove key")
    with Path(path).open("rb") as file:
        return _read_array(file, path, spec)


def _read_npz(path: str, key: str | None, spec: TensorSpec) -> Array:
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        name = _require_name(path, key, names)
        member = archive.infolist()[names.index(name)]
        most = spec.elements * _LARGEST_ELEMENT_BYTES + _LARGEST_HEADER_BYTES
        if member.file_size > most:
            raise _bad(
                path,
                f"holds {member.file_size:,} bytes in {name}, but {spec.dtype}[{format_shape(spec.shape)}] has fewer",
            )
        return _read_array(io.BytesIO(archive.read(member)), path, spec)


# The size of clongdouble, NumPy's largest number: a wrong dtype is reported by its name, not as too many bytes.
_LARGEST_ELEMENT_BYTES = 32
_LARGEST_HEADER_BYTES = 1 << 16


def _read_array(file: BinaryIO, path: str, spec: TensorSpec) -> Array:
    """Read an array in NumPy's format; raise a fault if its shape or dtype is not that of ``spec``."""
    # The shape is checked first, before NumPy allocates memory for it.
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape = read_header(file)[0]
    if shape != spec.shape:
        raise _bad(path, f"has the shape {format_shape(shape)}, expected {format_shape(spec.shape)}")
    file.seek(0)
    array, target = np.lib.format.read_array(file, allow_pickle=False), numpy_dtype(spec.dtype)
    if array.dtype.newbyteorder("=") == target:
        return array.astype(target, copy=False)
    if spec.dtype.name in _RAW_IN_NUMPY and array.dtype == np.dtype(("V", target.itemsize)):
        return array.view(target)
    raise _bad(path, f"holds {array.dtype.name}, expected {spec.dtype}")


def _read_bin(path: str, key: str | None, spec: TensorSpec) -> Array:
    """Read raw elements; raise a fault for another size, and for bytes other than 0 and 1 in bool."""
    if key is not None:
        raise _bad(path, f"is raw bytes without names, but key is {key!r}; remove key")
    raw = np.fromfile(path, np.uint8)
    if raw.size != spec.nbytes:
        raise _bad(path, f"has {raw.size} bytes, expected {spec.nbytes} for {spec.dtype}[{format_shape(spec.shape)}]")
    target = numpy_dtype(spec.dtype)
    array = raw.view(target).reshape(spec.shape)
    beyond = byte_beyond_bool(array) if spec.dtype.name == "bool" else None
    if beyond is not None:
        raise _bad(path, f"holds the byte {beyond[1]} at {beyond[0]}, expected 0 or 1 for bool")
    return array


def _read_pt(path: str, key: str | None, spec: TensorSpec) -> Array:
    """Read a tensor that ``torch.save`` wrote, by itself or in a dictionary, with ``weights_only=True``."""
    try:
        import torch
    except ModuleNotFoundError:
        raise Unavailable(f"reading {path}", "pip install torch") from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (torch.serialization.pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        first = str(error).strip().partition("\n")[0]
        raise _bad(path, f"cannot be read: {first} (weights_only=True accepts only tensors)") from error
    if isinstance(loaded, dict):
        loaded = loaded[_require_name(path, key, [name for name in loaded if isinstance(loaded[name], torch.Tensor)])]
    elif key is not None:
        raise _bad(path, f"holds one tensor without a name, but key is {key!r}; remove key")
    if not isinstance(loaded, torch.Tensor):
        raise _bad(path, f"holds a {type(loaded).__name__}, expected a tensor or a dictionary of tensors")
    dtype_name = str(loaded.dtype).removeprefix("torch.")
    if dtype_name != spec.dtype.name:
        raise _bad(path, f"holds {dtype_name}, expected {spec.dtype}")
    # Through bytes, since NumPy lacks some dtypes of torch; lazy conjugates and negatives have to be resolved first.
    dense = loaded.detach().resolve_conj().resolve_neg().contiguous()
    raw: Array = dense.reshape(-1).view(torch.uint8).numpy()
    return raw.view(numpy_dtype(spec.dtype)).reshape(tuple(loaded.shape))


def _read_safetensors(path: str, key: str | None, spec: TensorSpec) -> Array:
    """Read one tensor of a safetensors file; raise a fault for another dtype."""
    tensors = _load_safetensors(path)
    tensor = tensors[_require_name(path, key, tensors)]
    dtype_name = _SAFETENSORS.get(tensor["dtype"])
    if dtype_name != spec.dtype.name:
        raise _bad(path, f"holds {dtype_name or tensor['dtype']}, expected {spec.dtype}")
    return _array_of(tensor, spec.dtype)


def _load_safetensors(path: str) -> dict[str, Any]:
    """Return ``shape``, ``dtype`` and ``data`` of every tensor in the file, by name.

    Raises:
        Fault: BAD_CASE if the file has another format.
        Unavailable: without the package.
    """
    try:
        import safetensors
    except ModuleNotFoundError:
        raise Unavailable(f"reading {path}", "pip install safetensors") from None
    try:
        return dict(safetensors.deserialize(Path(path).read_bytes()))  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise _bad(path, f"is not a valid safetensors file: {error}") from error


def _array_of(tensor: Mapping[str, Any], dtype: DType) -> Array:
    return np.frombuffer(tensor["data"], np.uint8).view(numpy_dtype(dtype)).reshape(tuple(tensor["shape"]))


def tensors_in_file(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Read all tensors of a safetensors file by name, and its metadata.

    Raises:
        UsageError: if the file cannot be read, or holds a dtype that optest does not have.
        Unavailable: without the package.
    """
    require_regular(path)
    try:
        loaded = _load_safetensors(str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except Fault as fault:
        raise UsageError(fault.message) from None
    unknown = next((tensor["dtype"] for tensor in loaded.values() if tensor["dtype"] not in _SAFETENSORS), None)
    if unknown is not None:
        raise UsageError(f"{path} holds {unknown}, which is no dtype of optest")
    tensors = {name: _array_of(tensor, dtype(_SAFETENSORS[tensor["dtype"]])) for name, tensor in loaded.items()}
    # The package does not return the metadata: read the header, which follows its length in 8 bytes.
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return tensors, header.get("__metadata__", {})


def save_tensors(tensors: Mapping[str, Array], path: Path, case: str, **metadata: str) -> None:
    """Write a safetensors file atomically, with the case's id and ``metadata`` as its metadata.

    Raises:
        UsageError: if it cannot be written, or the format does not have a dtype.
        Unavailable: without the package.
    """
    try:
        from safetensors.numpy import save
    except ModuleNotFoundError:
        raise Unavailable(f"writing {path}", "pip install safetensors") from None
    dense = {}
    for name, tensor in tensors.items():
        element = tensor.dtype.newbyteorder("=")
        if element.name not in _SAFETENSORS.values():
            raise UsageError(f"{path} cannot be written: {name} is {element.name}, which safetensors does not have")
        # `save` copies raw memory and ignores strides; ascontiguousarray would turn a scalar into a vector.
        dense[name] = np.asarray(tensor, element, order="C")
    write_atomically(path, save(dense, metadata={"case": case, **metadata}))


_SAFETENSORS = {
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    **{
        f"{letter}{bits}": f"{name}{bits}" for letter, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)
    },
}


def _require_name(path: str, key: str | None, names: Iterable[str]) -> str:
    """Return ``key``, or without one the only name.

    Raises:
        UnknownName: for a key that is not among the names.
        Fault: BAD_CASE without a key, if there is not exactly one name.
    """
    known = list(names)
    if key is not None and key not in known:
        raise UnknownName(f"tensor in {path}", key, map(str, known))
    if key is None and len(known) != 1:
        raise _bad(path, f"holds {len(known)} tensors ({', '.join(map(str, known[:8]))}); add key: NAME")
    return known[0] if key is None else key


_READERS: dict[str, Callable[[str, str | None, TensorSpec], Array]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".bin": _read_bin,
    ".pt": _read_pt,
    ".safetensors": _read_safetensors,
}
