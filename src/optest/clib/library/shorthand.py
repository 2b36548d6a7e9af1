"""Operators with a descriptor as ``name``, ``create`` and ``run``: a shorthand for a function with one object.

A file that has a ``protocol`` may write them so. They are expanded when it is read, and nobody else knows of it but
for messages, which name the places that were written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from optest.clib.library.arguments import DESCRIPTOR
from optest.clib.library.mapping_words import Word
from optest.clib.library.operator_mapping import OperatorMapping

__all__ = ["Shorthand", "expanded", "expanded_tensor", "is_shorthand", "written"]

_OBJECT = "descriptor"
_OWN = ("name", "create", "run", "workspace")
_OF_WHOLE_ENTRIES = ("call", "function", "functions", "objects")
_TENSOR = re.compile(r"(?:input|output|tensor):[A-Za-z_]\w*\??")
_TYPES = {"shape": "shape as size_t[]", "strides": "strides as ptrdiff_t[]"}
_WRITTEN = {
    f"objects.{_OBJECT}.create.arguments": "create",
    f"objects.{_OBJECT}.create": "create",
    f"objects.{_OBJECT}.destroy": "destroy",
    f"objects.{_OBJECT}": "create",
    "function": "run",
    "call": "run",
}


class Shorthand(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry has in place of its function, its objects and its workspace."""

    name: str
    create: tuple[Word, ...]
    run: tuple[Word, ...]
    workspace: bool = True


msgspec.json.Decoder(Shorthand)  # known before two threads use it, as the types of a whole mapping


def is_shorthand(entry: Any) -> bool:
    """Whether an entry is one; what has keys of both kinds is none, and has unknown keys."""
    is_own = isinstance(entry, dict) and ("create" in entry or "run" in entry or "name" in entry)
    return is_own and not any(key in entry for key in _OF_WHOLE_ENTRIES)


def expanded(entry: Mapping[str, Any], short: Shorthand, protocol: Any) -> dict[str, Any]:
    """The entry that it stands for, as a file would write it."""
    patterns = protocol if isinstance(protocol, Mapping) else {}
    functions = {part: str(pattern).replace("{name}", short.name) for part, pattern in patterns.items()}
    create = [f"{each} as {DESCRIPTOR}" if _TENSOR.fullmatch(each) else each for each in short.create]
    made = {"function": functions.get("create", ""), "arguments": create}
    sized = {"function": functions.get("workspace", ""), "arguments": [f"object:{_OBJECT}", "slot"]}
    return {
        **{key: value for key, value in entry.items() if key not in _OWN},
        "name": short.name,
        "function": functions.get("run", ""),
        "objects": {_OBJECT: {"create": made, "destroy": functions.get("destroy", ""), "copies": True}},
        **({"workspace": sized} if short.workspace else {}),
        "call": [f"object:{_OBJECT}" if each == _OBJECT else each for each in short.run],
    }


def expanded_tensor(tensor: Any) -> Any:
    """What is made of tensors, with the types that sizes and strides have where none are written."""
    create = tensor.get("create") if isinstance(tensor, dict) else None
    arguments = create.get("arguments") if isinstance(create, dict) else None
    if not isinstance(arguments, list):
        return tensor
    typed = [_TYPES.get(each, each) if isinstance(each, str) else each for each in arguments]
    return {**tensor, "create": {**tensor["create"], "arguments": typed}}


def written(entry: OperatorMapping, key: str) -> str:
    """The place in the file of a key such as ``objects.descriptor.create.arguments[2]``."""
    if not entry.name:
        return key
    for place, short in _WRITTEN.items():
        rest = key.removeprefix(place)
        if rest != key and rest[:1] in ("", ".", "["):
            return short + rest
    return key
