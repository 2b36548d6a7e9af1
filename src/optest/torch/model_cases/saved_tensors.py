"""What a .pt file holds, told from its header: no torch, and no pickle is run.

``torch.save`` writes a zip archive whose ``data.pkl`` describes the tensors and whose other members are their bytes.
Names in it stand for themselves here; whatever calls another than the few that describe a tensor is refused.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from optest.plan.values import Misfit

__all__ = ["SavedTensor", "saved_tensor"]

_MOST_BYTES = 4 * 1024 * 1024
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip


class SavedTensor(NamedTuple):
    """A tensor in a file: dtype by name, shape, strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def saved_tensor(path: Path, name: str, key: str | None = None) -> SavedTensor:
    """The tensor in ``path``, which messages call ``name``; ``key`` chooses from a dictionary of tensors.

    Raises:
        Misfit: if there is no such file, it is no archive of torch's, or it holds more than tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            member = next((each for each in archive.infolist() if each.filename.endswith("/data.pkl")), None)
            if member is None or member.file_size > _MOST_BYTES:
                raise Misfit(f"{name} is an archive, but not one that torch.save makes of tensors", hint=_HINT)
            described = archive.read(member)
    except OSError as error:
        raise Misfit(f"{name} cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise Misfit(f"{name} is no archive that torch.save makes: {error}", hint=_HINT) from None
    try:
        found = _Description(io.BytesIO(described)).load()
    except _NotATensor as error:
        raise Misfit(f"{name} holds more than tensors: {error}", hint=_HINT) from None
    except (pickle.UnpicklingError, EOFError, struct.error, ValueError, LookupError, TypeError, AttributeError,
            OverflowError, MemoryError, RecursionError):  # fmt: skip
        raise Misfit(f"{name} is damaged: its description ends or breaks off", hint=_HINT) from None
    return _chosen(found, name, key)


_HINT = "torch.save(tensor, 'x.pt') writes what is read here"


def _chosen(found: Any, name: str, key: str | None) -> SavedTensor:
    if isinstance(found, SavedTensor):
        if key is not None:
            raise Misfit(f"{name} holds one tensor without a name, but key is {key!r}")
        return found
    if not isinstance(found, dict):
        raise Misfit(f"{name} holds no tensor", hint=_HINT)
    tensors: dict[Any, SavedTensor] = {name: each for name, each in found.items() if isinstance(each, SavedTensor)}
    if key is None and len(tensors) == 1:
        return next(iter(tensors.values()))
    if key in tensors:
        return tensors[key]
    names = ", ".join(map(str, list(tensors)[:8]))
    wanted = "none is chosen" if key is None else f"none is called {key!r}"
    raise Misfit(
        f"{name} holds {len(tensors)} tensors ({names}), of which {wanted}",
        hint="tensor: {init: file, init_args: {path: x.pt, key: NAME}}",
    )


class _NotATensor(Exception):
    pass


class _Named:
    """Something of a module, by its name alone: nobody can call it, nor make one of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__new__ = self  # type: ignore[assignment, method-assign] # pickles of newer protocols ask a class for it

    def __call__(self, *_: object) -> Any:
        raise _NotATensor(f"it calls {self.name}")


class _Storage(NamedTuple):
    dtype: str | None


class _Description(pickle._Unpickler):
    """Reads the pickle that describes tensors, without making anything that it names.

    In Python: where a damaged pickle numbers its memo by billions, that of C allocates as much.
    """

    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        return _KNOWN.get(full) or _Named(full)

    def persistent_load(self, identity: Any) -> _Storage:
        kind = identity[1].name.rpartition(".")[2]
        if kind != "UntypedStorage" and kind not in _STORAGES:
            raise _NotATensor(f"a storage of the type {identity[1].name}")
        return _Storage(_STORAGES.get(kind))

    def _without_state(self) -> None:
        """Attributes are set of nothing; torch notes some of a dictionary of tensors."""
        self.stack.pop()
        if not isinstance(self.stack[-1], OrderedDict):
            raise _NotATensor("it states attributes of what is no dictionary")

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: _without_state}


def _rebuilt(storage: _Storage, _: Any, shape: Any, strides: Any, *more: Any) -> SavedTensor:
    """What torch makes a tensor by; newer ones state a dtype beside an untyped storage."""
    dtype = storage.dtype or more[2].name.removeprefix("torch.")
    if not all(type(each) is int and each >= 0 for each in (*shape, *strides)) or len(shape) != len(strides):
        raise ValueError("sizes are no integers of 0 or more")
    return SavedTensor(dtype, tuple(shape), tuple(strides))


def _parameter(tensor: Any, *_: Any) -> SavedTensor:
    if not isinstance(tensor, SavedTensor):
        raise _NotATensor("it calls torch._utils._rebuild_parameter")
    return tensor


_KNOWN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _rebuilt,
    "torch._utils._rebuild_tensor_v3": _rebuilt,
    "torch._utils._rebuild_parameter": _parameter,
}
