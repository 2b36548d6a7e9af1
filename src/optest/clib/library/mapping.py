"""How a C library is called, as data: a YAML file that maps operators to functions and their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from optest.clib.library.c_objects import NO_OBJECT, Call, ObjectEntry
from optest.clib.library.mapping_words import Refusal
from optest.clib.library.operator_mapping import OperatorMapping
from optest.spec import OperatorDescriptor

__all__ = [
    "LAYOUTS",
    "NO_PROTOCOL",
    "PLAIN_STATUSES",
    "LibraryMapping",
    "Protocol",
    "StatusWords",
]

LAYOUTS = {
    "dense": "row-major, without gaps",
    "rows": "the innermost stride is 1",
    "matrix": "one of the two innermost strides is 1, as in BLAS",
}
"""What a library may need of the layout of a tensor."""


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of an operator's four functions; ``{name}`` is the operator's."""

    create: str = ""
    workspace: str = ""
    run: str = ""
    destroy: str = ""

    def patterns(self) -> dict[str, str]:
        return msgspec.structs.asdict(self)


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
    unsupported: tuple[int | str, ...] = ()
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


# msgspec gets to know a type when it is first used, and crashes where two threads do so at once
msgspec.json.Decoder(LibraryMapping)
