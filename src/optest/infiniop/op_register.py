"""Signatures written by hand, for functions that no header declares; a header has to agree with them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optest.clib.ffi.arguments import ctype_matches
from optest.clib.ffi.signatures import Header, HeaderError, Prototype
from optest.errors import UsageError

Configure = Callable[[Any], None]


class Drift(UsageError):
    """Differences between hand-written signatures and the header's; one line each."""

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        super().__init__("\n".join(self.differences))


@dataclass(slots=True)
class Declared:
    """Registered signature of one function; ``argtypes`` is None if not set, ``restype`` is int as in ctypes."""

    argtypes: Sequence[Any] | None = None
    restype: Any = ctypes.c_int


class _Recording:
    """Substitute for the library that records registrations, so that no library has to be loaded."""

    def __init__(self) -> None:
        self.declared: dict[str, Declared] = {}

    def __getattr__(self, name: str) -> Declared:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.declared.setdefault(name, Declared())


class OpRegister:
    """Registry of functions that set ``argtypes`` and ``restype`` on the library; they run when a library is used."""

    registry: ClassVar[list[Configure]] = []

    @classmethod
    def operator(cls, op: Configure) -> Configure:
        """Register ``def add_(lib): lib.infiniopAdd.argtypes = [...]``; a decorator."""
        cls.registry.append(op)
        return op

    @classmethod
    def register_lib(cls, lib: Any) -> None:
        """Compare all registrations with the header; raise Drift with every difference. Calls also check."""
        declared = cls._all_declared() if lib.header is not None else {}
        differences = [line for name in declared for line in _differences_from(lib.header, name, declared[name])]
        if differences:
            raise Drift(differences)

    @classmethod
    def declared(cls, name: str) -> Declared | None:
        """Return the latest registered signature of a function, None without a registration."""
        return cls._all_declared().get(name)

    @classmethod
    def _all_declared(cls) -> Mapping[str, Declared]:
        recording = _Recording()
        for configure in cls.registry:
            configure(recording)
        return recording.declared


def _differences_from(header: Header, name: str, declared: Declared) -> list[str]:
    """Return how a registration differs from the header, also if the header has no usable declaration."""
    try:
        return drift_of(declared, header.prototype(name))
    except HeaderError as error:
        return [f"{name} is registered, but its declaration cannot be used: {error}"]
    except UsageError as error:
        return [f"{name} is registered, but no header declares it: {error}"]


def drift_of(declared: Declared, prototype: Prototype) -> list[str]:
    """Return how a hand-written signature differs from the header's, one line per argument."""
    name, parameters = prototype.name, prototype.parameters
    pairs = [("the result", declared.restype, prototype.result)]
    for index, (ctype, parameter) in enumerate(zip(declared.argtypes or (), parameters, strict=False)):
        pairs.append((prototype.label(index), ctype, parameter.type))
    differences = [
        f"{name}: {label} is declared {getattr(ctype, '__name__', ctype or 'void')}, expected {type_} as in the header"
        for label, ctype, type_ in pairs
        if not ctype_matches(ctype, type_)
    ]
    count = len(parameters) if declared.argtypes is None else len(declared.argtypes)
    if count != len(parameters):
        missing = ", ".join(map(str, parameters[count:]))
        suffix = f"; missing at the end: {missing}" if missing else ""
        differences.append(
            f"{name} is declared with {count} arguments, expected {len(parameters)} as in the header{suffix}"
        )
    return [line + prototype.location_line for line in differences]


# No operators: a script that calls only these tests nothing.
CORE_FUNCTIONS = frozenset(
    {
        "infiniopCreateTensorDescriptor",
        "infiniopDestroyTensorDescriptor",
        "infiniopCreateHandle",
        "infiniopDestroyHandle",
        "infinirtSetDevice",
    }
)
