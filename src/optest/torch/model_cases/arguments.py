"""Conversion of the arguments of a captured call to values: literals, and dtypes and devices spelled as text."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any

from optest.plan.values import Misfit, shown
from optest.spec.calls import Call, Device, NotLiteral, TorchName, parse_value
from optest.torch.model_cases.tensors import at_path, dtype_of

_TORCH_CONSTANT = re.compile(r"torch\.[a-z]\w*")
_DEVICE = re.compile(r"(cpu|cuda|xpu|mps|meta|npu|mlu|musa|gcu|hpu|xla|spyre|privateuseone)(:\d+)?")


def value_of(value: Any) -> Any:
    """Convert a ``value`` or keyword argument; text that spells a tuple, list, dtype or device becomes that.

    Raises:
        Misfit: for a value that no call can contain, such as a mapping.
    """
    if isinstance(value, str):
        if _TORCH_CONSTANT.fullmatch(value):
            return TorchName(value)
        if _DEVICE.fullmatch(value):
            return Device(value)
        if value[:1] + value[-1:] in ("()", "[]"):
            try:
                return _without_tensors(parse_value(value), value)
            except NotLiteral:
                return value
        return _WORDS.get(value, value)
    if isinstance(value, list):
        return [value_of(item) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    hint = "no torch call takes a mapping: write its values as arguments, and a tensor as {tensor: {shape: [2, 3]}}"
    raise Misfit(f"the value is {shown(value)}, expected a scalar, a list or text", hint=hint)


# Keyword arguments that are dtypes, so that the words fp16 and float16 are unambiguous.
_DTYPES = ("dtype", "out_dtype")
_WORDS = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
}


def literal(text: str) -> Any:
    """Return the value of the Python literal ``text``.

    Raises:
        Misfit: for anything except a literal or a known constructor, such as slice().
    """
    try:
        return _without_tensors(parse_value(text), text)
    except NotLiteral as error:
        raise Misfit(f"py is not a literal: {error}") from None


def _without_tensors(value: Any, text: str) -> Any:
    if Call("", (value,)).tensors():
        raise NotLiteral(f"{shown(text)} names a tensor; write tensors under the key tensor")
    return value


def keywords(
    case: Mapping[str, Any], read: Callable[[Any, tuple[str, str]], Any] = lambda value, _: value_of(value)
) -> dict[str, Any]:
    """Return the keyword arguments in ``attrs`` and ``kwmap``; ``read`` converts an entry at its path in the case.

    Raises:
        Misfit: for a keyword that is in both, or that is not an identifier.
    """
    found: dict[str, Any] = {}
    for owner in ("attrs", "kwmap"):
        for name, value in (case.get(owner) or {}).items():
            path = (owner, name)
            if name in found:
                message = f"{name} is both in attrs and in kwmap, expected in one"
                raise Misfit(message, path=path, hint="remove one of them")
            if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
                hint = "kwmap: {dim: -1, keepdim: true}"
                raise Misfit(f"{name!r} cannot be the name of a keyword argument", path=path, hint=hint)
            with at_path(*path):
                is_word = isinstance(value, str) and not _TORCH_CONSTANT.fullmatch(value) and value not in _WORDS
                is_dtype = name in _DTYPES and is_word
                found[name] = TorchName(f"torch.{dtype_of(value).name}") if is_dtype else read(value, path)
    return found
