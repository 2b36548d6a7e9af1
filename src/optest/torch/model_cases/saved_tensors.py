"""Reading of dtypes and shapes of tensors in .pt files, without torch and without executing the pickle.

``torch.save`` writes a zip archive whose ``data.pkl`` describes the tensors and whose other members are their bytes.
Only the pickle operations that describe a tensor are interpreted; others are refused by name.
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
    """Dtype name, shape and strides in elements of a tensor in a file."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def saved_tensor(path: Path, name: str, key: str | None = None) -> SavedTensor:
    """Describe the tensor in ``path``, called ``name`` in messages; ``key`` selects from a dictionary of tensors.

    Raises:
        Misfit: if the file cannot be read, is no archive of torch.save, or contains more than tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            member = next((x for x in archive.infolist() if x.filename.endswith("/data.pkl")), None)
            if member is None or member.file_size > _MOST_BYTES:
                raise Misfit(f"{name} is another archive, expected one of tensors that torch.save wrote", hint=_HINT)
            described = archive.read(member)
    except OSError as error:
        raise Misfit(f"{name} cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise Misfit(f"{name} is not an archive of torch.save: {error}", hint=_HINT) from None
    try:
        found = _described(described)
    except _NotATensor as error:
        raise Misfit(f"{name} contains more than tensors: {error}", hint=_HINT) from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError):
        raise Misfit(f"{name} is damaged: its description of tensors is invalid", hint=_HINT) from None
    return _select_tensor(found, name, key)


_HINT = "write the file by torch.save(tensor, 'x.pt')"


def _select_tensor(found: Any, name: str, key: str | None) -> SavedTensor:
    """Return the tensor of that key, or the only one without a key; raise Misfit if there is no such tensor."""
    if isinstance(found, SavedTensor):
        if key is not None:
            raise Misfit(f"key is {key!r}, expected none: {name} contains one tensor without a name")
        return found
    if not isinstance(found, dict):
        raise Misfit(f"{name} contains no tensor", hint=_HINT)
    tensors: dict[Any, SavedTensor] = {
        name: tensor for name, tensor in found.items() if isinstance(tensor, SavedTensor)
    }
    if key is None and len(tensors) == 1:
        return next(iter(tensors.values()))
    if key in tensors:
        return tensors[key]
    names = ", ".join(map(str, list(tensors)[:8]))
    wanted = "key selects none" if key is None else f"none is called {key!r}"
    raise Misfit(
        f"{name} contains {len(tensors)} tensors ({names}), of which {wanted}",
        hint="tensor: {init: file, init_args: {path: x.pt, key: NAME}}",
    )


class _NotATensor(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Named:
    """Qualified name of an object that the pickle refers to."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: str | None


_MARK = object()


def _described(raw: bytes) -> Any:
    """Interpret a pickle that describes tensors without importing or calling anything; return the described object."""
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
                    raise _NotATensor(f"a storage of type {name}")
                stack.append(_Storage(_STORAGES.get(kind)))
            case "BUILD" if isinstance(stack[-2], dict):
                stack.pop()  # attributes that torch adds to a dictionary of tensors
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append(_call_result(function, arguments))
            case other:
                raise _NotATensor(f"its description uses {other}")
    raise ValueError("it does not end")


def _since_mark(stack: list[Any]) -> list[Any]:
    items = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    return items[::-1]


def _call_result(function: Any, arguments: Any) -> Any:
    """Return the description of the object that a known call in a pickle would build; raise _NotATensor otherwise."""
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
