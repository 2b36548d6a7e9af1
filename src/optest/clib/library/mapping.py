"""How a C library is called, as data: a YAML file that maps operators to functions and their arguments.

A file that has a ``protocol`` may write operators with a descriptor as ``name``, ``create`` and ``run``: a shorthand
for a function with one object. It is expanded when the file is read, and nobody else knows of it but for messages,
which name the places that were written.
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
    """Names of an operator's four functions; ``{name}`` is the operator's."""

    create: str = ""
    workspace: str = ""
    run: str = ""
    destroy: str = ""


PLAIN_STATUSES = ("int", "bool")
"""Types of a status that is no enum of the headers."""


class StatusWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a status means beyond its type: which are no errors, numbers or names of the headers (0 where none are
    stated, true for a bool), and the function that returns a text for one, or for the latest error."""

    success: tuple[int | str, ...] = ()
    message: Call | None = None


class Threads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What sets the number of threads; ``callers`` is one where only one thread of a program may call the library."""

    functions: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    callers: Literal["any", "one"] = "any"


NO_PROTOCOL = Protocol()


class LibraryMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file; docs/c-libraries/mapping.md says what each key means.

    ``statuses`` are what a file states under ``status`` beside its ``type``.
    """

    version: Literal[1]
    name: str
    library: tuple[str, ...]
    headers: tuple[str, ...] = ()
    status: str = ""
    statuses: StatusWords = StatusWords()
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
        """What the mapping says of an operator, under its name or an alias; () if nothing."""
        names = (descriptor.name, *descriptor.aliases)
        return next((self.operators[name] for name in names if name in self.operators), ())

    def whole_calls(self) -> dict[str, Call]:
        """The calls that belong to no operator, by their place in the file."""
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
        return self.refuses if entry.refuses is None else entry.refuses

    def is_unsupported(self, entry: OperatorMapping, status: int | str, tensors: Iterable[TensorSpec]) -> bool:
        """Return whether the status means, for a call of these tensors, that the library has no kernel for it."""
        declared = self.unsupported if entry.unsupported is None else entry.unsupported
        calls = declared.get(status, ()) if isinstance(declared, Mapping) else "any" if status in declared else ()
        if isinstance(calls, str):  # a stride other than 1 is refused by some even where the size is 1
            needed = ("dense", "rows") if calls == "strided" else (calls.removeprefix("not "),)
            laid = [each for each in tensors if each.strides and each.elements]
            return calls == "any" or not all(has_layout(each, layout) for each in laid for layout in needed)
        return any(spec.dtype.name in calls for spec in tensors)


# msgspec gets to know a type when it is first used, and crashes where two threads do so at once
msgspec.json.Decoder(LibraryMapping)


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
