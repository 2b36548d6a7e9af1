"""Signatures written by hand, for what no header declares; where there is a header they are held against it."""

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
    """Hand-written signatures that are not the header's; one line for each."""

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        super().__init__("\n".join(self.differences))


@dataclass(slots=True)
class Declared:
    """What a registration says of one function; ``None`` for what it does not say. ctypes' own default is int."""

    argtypes: Sequence[Any] | None = None
    restype: Any = ctypes.c_int


class _Recording:
    """Stands in for the library while registrations run, so that none has to be loaded."""

    def __init__(self) -> None:
        self.declared: dict[str, Declared] = {}

    def __getattr__(self, name: str) -> Declared:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.declared.setdefault(name, Declared())


class OpRegister:
    """Collects functions that set ``argtypes`` and ``restype`` on the library; none runs before a library is used."""

    registry: ClassVar[list[Configure]] = []

    @classmethod
    def operator(cls, op: Configure) -> Configure:
        """Decorator over ``def add_(lib): lib.infiniopAdd.argtypes = [...]``."""
        cls.registry.append(op)
        return op

    @classmethod
    def register_lib(cls, lib: Any) -> None:
        """Hold everything that was registered against the library's header.

        It is not needed before a call: each function is checked when it is used, so that one that is wrong or missing
        breaks no other.

        Raises:
            Drift: naming every argument that is not the header's.
        """
        declared = cls._all_declared() if lib.header is not None else {}
        differences = [line for name, each in declared.items() for line in _against(lib.header, name, each)]
        if differences:
            raise Drift(differences)

    @classmethod
    def declared(cls, name: str) -> Declared | None:
        """The signature of a function that was registered; a later registration wins."""
        return cls._all_declared().get(name)

    @classmethod
    def _all_declared(cls) -> Mapping[str, Declared]:
        recording = _Recording()
        for configure in cls.registry:
            configure(recording)
        return recording.declared


def _against(header: Header, name: str, declared: Declared) -> list[str]:
    try:
        return drift_of(declared, header.prototype(name))
    except HeaderError as error:
        return [f"{name} is registered, but its declaration cannot be used: {error}"]
    except UsageError as error:
        return [f"{name} is registered, but no header declares it: {error}"]


def drift_of(declared: Declared, prototype: Prototype) -> list[str]:
    """How a hand-written signature differs from the header's, one sentence for each argument."""
    name, parameters = prototype.name, prototype.parameters
    pairs = [("the result", declared.restype, prototype.result)]
    for index, (ctype, parameter) in enumerate(zip(declared.argtypes or (), parameters, strict=False)):
        pairs.append((prototype.label(index), ctype, parameter.type))
    found = [
        f"{name}: {what} is declared {_name(ctype)}, but the header says {type_}"
        for what, ctype, type_ in pairs
        if not ctype_matches(ctype, type_)
    ]
    count = len(parameters) if declared.argtypes is None else len(declared.argtypes)
    if count != len(parameters):
        missing = ", ".join(map(str, parameters[count:]))
        without = f"; missing at the end: {missing}" if missing else ""
        found.append(f"{name} is declared with {count} arguments, but the header has {len(parameters)}{without}")
    where = f"\n  at {prototype.where}: {prototype}" if prototype.where else ""
    return [line + where for line in found]


def _name(ctype: Any) -> str:
    return "void" if ctype is None else getattr(ctype, "__name__", repr(ctype))


CORE_FUNCTIONS = frozenset(
    {
        "infiniopCreateTensorDescriptor",
        "infiniopDestroyTensorDescriptor",
        "infiniopCreateHandle",
        "infiniopDestroyHandle",
        "infinirtSetDevice",
    }
)
"""No operators: a script that calls nothing else tests nothing."""
