"""What a .pt file holds, told from its header: no torch, and no pickle is run.

``torch.save`` writes a zip archive whose ``data.pkl`` describes the tensors and whose other members are their bytes.
The few operations that describe a tensor are followed here; whatever asks for more is refused by its name.
"""

from __future__ import annotations

import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.plan.values import Misfit

_MOST_BYTES = 4 * 1024 * 1024
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SavedTensor:
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
        found = _described(described)
    except _NotATensor as error:
        raise Misfit(f"{name} holds more than tensors: {error}", hint=_HINT) from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError):
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


@dataclass(frozen=True, slots=True)
class _Named:
    """Something of a module, by its name alone."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: str | None


_MARK = object()


def _described(raw: bytes) -> Any:
    """Follow the pickle that describes tensors, without making anything that it names."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, _position in pickletools.genops(raw):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case "GLOBAL":
                stack.append(_Named(str(argument).replace(" ", ".")))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "MARK":
                stack.append(_MARK)
            case "TUPLE":
                stack.append(tuple(_since_mark(stack)))
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(opcode.name[-1])
                several = [stack.pop() for _ in range(count)]
                stack.append(tuple(several[::-1]))
            case "EMPTY_DICT":
                stack.append({})
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                stack[-1][key] = value
            case "SETITEMS":
                several = _since_mark(stack)
                stack[-1].update(zip(several[::2], several[1::2], strict=True))
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode.name == "NEWTRUE")
            case "NONE":
                stack.append(None)
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINUNICODE" | "SHORT_BINUNICODE":
                stack.append(argument)
            case "BINPERSID":
                name = stack.pop()[1].name
                kind = name.rpartition(".")[2]
                if kind != "UntypedStorage" and kind not in _STORAGES:
                    raise _NotATensor(f"a storage of the type {name}")
                stack.append(_Storage(_STORAGES.get(kind)))
            case "BUILD" if isinstance(stack[-2], dict):
                stack.pop()  # what torch notes of a dictionary of tensors
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append(_made(function, arguments))
            case other:
                raise _NotATensor(f"its description uses {other}")
    raise ValueError("it does not end")


def _since_mark(stack: list[Any]) -> list[Any]:
    several = []
    while (each := stack.pop()) is not _MARK:
        several.append(each)
    return several[::-1]


def _made(function: Any, arguments: Any) -> Any:
    name = function.name
    if name == "collections.OrderedDict" and not arguments:
        return {}
    if name == "torch._utils._rebuild_parameter" and isinstance(arguments[0], SavedTensor):
        return arguments[0]
    if name in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"):
        storage, _, shape, strides = arguments[:4]
        dtype = storage.dtype or arguments[6].name.removeprefix("torch.")
        if not all(type(each) is int and each >= 0 for each in (*shape, *strides)) or len(shape) != len(strides):
            raise ValueError("sizes are no integers of 0 or more")
        return SavedTensor(dtype, tuple(shape), tuple(strides))
    raise _NotATensor(f"it calls {name}")
