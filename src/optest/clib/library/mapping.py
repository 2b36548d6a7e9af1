"""A mapping: a YAML file that maps operators to C functions and their arguments.

In a file with a ``protocol``, an operator with a descriptor may be written as ``name``, ``create`` and ``run``: a
shorthand for a function with one object. It is expanded when the file is read; messages name the keys that the file
has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from optest.clib.library.arguments import DESCRIPTOR
from optest.clib.library.layouts import has_layout
from optest.clib.library.mapping_words import Refusal, Word
from optest.clib.library.operator_mapping import NO_OBJECT, Call, ObjectEntry, OperatorMapping, Unsupported
from optest.spec import OperatorDescriptor, TensorSpec


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Name patterns of an operator's four functions; ``{name}`` is the operator's name."""

    create: str = ""
    workspace: str = ""
    run: str = ""
    destroy: str = ""


PLAIN_STATUSES = ("int", "bool")  # Status types that are no enum of the headers.


class StatusWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Meaning of status values."""

    success: tuple[int | str, ...] = ()  # numbers or names; by default 0, or true for bool
    message: Call | None = None  # returns the text of a status or of the latest error


class Threads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to set the number of threads of the library."""

    functions: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    callers: Literal["any", "one"] = "any"  # one: only one thread of a program may call the library


NO_PROTOCOL = Protocol()


class LibraryMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping file; docs/c-libraries/mapping.md describes the keys."""

    version: Literal[1]
    name: str
    library: tuple[str, ...]
    headers: tuple[str, ...] = ()
    status: str = ""
    statuses: StatusWords = StatusWords()  # keys next to type under status
    dtypes: Mapping[str, str] = {}
    devices: Mapping[str, int] = msgspec.field(default_factory=lambda: {"cpu": 0})
    set_device: Call | None = None
    setup: tuple[Call, ...] = ()
    handle: ObjectEntry = NO_OBJECT
    tensor: ObjectEntry = NO_OBJECT
    protocol: Protocol = NO_PROTOCOL
    operators: Mapping[str, tuple[OperatorMapping, ...]] = {}
    negative_increments: Literal["first", "lowest"] = "first"
    unsupported: Unsupported = ()
    no_operator: tuple[int | str, ...] = ()
    refuses: tuple[Refusal, ...] = ()
    synchronize: Call | None = None
    numerics: Mapping[str, Mapping[str, Any]] = {}
    alignment: int = 1
    get_device: Call | None = None
    threads: Threads = Threads()

    def entries(self, descriptor: OperatorDescriptor) -> tuple[OperatorMapping, ...]:
        """Return the entries of an operator under its name or an alias; () without any."""
        names = (descriptor.name, *descriptor.aliases)
        return next((self.operators[name] for name in names if name in self.operators), ())

    def global_calls(self) -> dict[str, Call]:
        """Return the calls that belong to no operator, by their key in the file."""
        calls = {
            **{f"setup[{index}]": call for index, call in enumerate(self.setup)},
            "set_device": self.set_device,
            "get_device": self.get_device,
            "synchronize": self.synchronize,
            "handle.create": self.handle.create if self.handle != NO_OBJECT else None,
            "status.message": self.statuses.message,
        }
        return {where: call for where, call in calls.items() if call is not None}

    def promised(self, entry: OperatorMapping) -> tuple[str, ...]:
        """Return the kinds of wrong calls that the library is declared to refuse for an entry."""
        return self.refuses if entry.refuses is None else entry.refuses

    def is_unsupported(self, entry: OperatorMapping, status: int | str, tensors: Iterable[TensorSpec]) -> bool:
        """Return whether, for a call of these tensors, the status means that the library has no kernel."""
        declared = self.unsupported if entry.unsupported is None else entry.unsupported
        calls = declared.get(status, ()) if isinstance(declared, Mapping) else "any" if status in declared else ()
        if isinstance(calls, str):
            # Some libraries refuse a stride other than 1 even if the size is 1.
            needed = ("dense", "rows") if calls == "strided" else (calls.removeprefix("not "),)
            laid = [spec for spec in tensors if spec.strides and spec.elements]
            return calls == "any" or not all(has_layout(spec, layout) for spec in laid for layout in needed)
        return any(spec.dtype.name in calls for spec in tensors)


# msgspec initialises a type at its first use, and crashes if two threads do so at once.
msgspec.json.Decoder(LibraryMapping)


_OBJECT = "descriptor"
_SHORT_KEYS = ("name", "create", "run", "workspace")
_FULL_KEYS = ("call", "function", "functions", "objects")
_TENSOR = re.compile(r"(?:input|output|tensor):[A-Za-z_]\w*\??")
_TYPES = {"shape": "shape as size_t[]", "strides": "strides as ptrdiff_t[]"}
_WRITTEN_KEYS = {
    f"objects.{_OBJECT}.create.arguments": "create",
    f"objects.{_OBJECT}.create": "create",
    f"objects.{_OBJECT}.destroy": "destroy",
    f"objects.{_OBJECT}": "create",
    "function": "run",
    "call": "run",
}


class Shorthand(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that replace an entry's function, objects and workspace."""

    name: str
    create: tuple[Word, ...]
    run: tuple[Word, ...]
    workspace: bool = True


msgspec.json.Decoder(Shorthand)  # before two threads use it, as above


def is_shorthand(entry: Any) -> bool:
    """Return whether an entry is a shorthand; an entry with keys of both forms is not."""
    has_short_key = isinstance(entry, dict) and ("create" in entry or "run" in entry or "name" in entry)
    return has_short_key and not any(key in entry for key in _FULL_KEYS)


def expand_shorthand(entry: Mapping[str, Any], short: Shorthand, protocol: Any) -> dict[str, Any]:
    """Return the full entry that a shorthand abbreviates, as a file would write it."""
    patterns = protocol if isinstance(protocol, Mapping) else {}
    functions = {part: str(pattern).replace("{name}", short.name) for part, pattern in patterns.items()}
    create = [f"{text} as {DESCRIPTOR}" if _TENSOR.fullmatch(text) else text for text in short.create]
    create_call = {"function": functions.get("create", ""), "arguments": create}
    workspace_call = {"function": functions.get("workspace", ""), "arguments": [f"object:{_OBJECT}", "slot"]}
    return {
        **{key: value for key, value in entry.items() if key not in _SHORT_KEYS},
        "name": short.name,
        "function": functions.get("run", ""),
        "objects": {_OBJECT: {"create": create_call, "destroy": functions.get("destroy", ""), "copies": True}},
        **({"workspace": workspace_call} if short.workspace else {}),
        "call": [f"object:{_OBJECT}" if text == _OBJECT else text for text in short.run],
    }


def expand_tensor(tensor: Any) -> Any:
    """Return the tensor template with default C types for shape and strides."""
    create = tensor.get("create") if isinstance(tensor, dict) else None
    arguments = create.get("arguments") if isinstance(create, dict) else None
    if not isinstance(arguments, list):
        return tensor
    typed = [_TYPES.get(text, text) if isinstance(text, str) else text for text in arguments]
    return {**tensor, "create": {**tensor["create"], "arguments": typed}}


def written_key(entry: OperatorMapping, key: str) -> str:
    """Return the key as the file writes it, for a key of the expanded entry (``objects.descriptor.create``)."""
    if not entry.name:
        return key
    for full, short in _WRITTEN_KEYS.items():
        rest = key.removeprefix(full)
        if rest != key and rest[:1] in ("", ".", "["):
            return short + rest
    return key
