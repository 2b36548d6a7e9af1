"""Signatures written by hand, by decorator, and held against the library's header: drift is an error."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from optest.clib.ffi.matching import ctype_matches
from optest.clib.ffi.signatures import Header, HeaderError, Prototype
from optest.errors import UsageError

__all__ = ["Declared", "Drift", "SignatureRegistry", "drift_of"]

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


@dataclass(slots=True)
class _Recording:
    """Stands in for the library while a registration runs, so that none has to be loaded."""

    declared: dict[str, Declared] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Declared:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.declared.setdefault(name, Declared())


class SignatureRegistry:
    """Collects functions that set ``argtypes`` and ``restype`` on a library; none runs before it is asked for."""

    def __init__(self) -> None:
        self._configures: list[Configure] = []

    def operator(self, configure: Configure) -> Configure:
        """Decorator: ``@registry.operator`` over ``def add(lib): lib.libAdd.argtypes = [...]``."""
        self._configures.append(configure)
        return configure

    def declared(self) -> Mapping[str, Declared]:
        """Every signature that was registered, by the function's name."""
        recording = _Recording()
        for configure in self._configures:
            configure(recording)
        return MappingProxyType(recording.declared)

    def drift(self, header: Header) -> tuple[str, ...]:
        """Every difference between the registrations and the header, in words."""
        return tuple(line for name, declared in self.declared().items() for line in _against(header, name, declared))

    def check(self, header: Header) -> None:
        """Raise :class:`Drift` with all differences, if there are any."""
        differences = self.drift(header)
        if differences:
            raise Drift(differences)


def _against(header: Header, name: str, declared: Declared) -> list[str]:
    try:
        return drift_of(declared, header.prototype(name))
    except HeaderError as error:
        return [f"{name} is registered, but its declaration cannot be used: {error}"]
    except UsageError as error:
        return [f"{name} is registered, but no header declares it: {error}"]


def drift_of(declared: Declared, prototype: Prototype) -> list[str]:
    """How a hand-written signature differs from the header's, one sentence for each argument."""
    where = f"\n  at {prototype.where}: {prototype}" if prototype.where else ""
    found = []
    if not ctype_matches(declared.restype, prototype.result):
        found.append(
            f"{prototype.name}: the result is declared {_name(declared.restype)}, "
            f"but the header says {prototype.result}{where}"
        )
    if declared.argtypes is None:
        return found
    wanted = prototype.parameters
    for index, (ctype, parameter) in enumerate(zip(declared.argtypes, wanted)):  # noqa: B905 - lengths are told below
        if not ctype_matches(ctype, parameter.type):
            found.append(
                f"{prototype.name}: {prototype.label(index)} is declared {_name(ctype)}, "
                f"but the header says {parameter.type}{where}"
            )
    if len(declared.argtypes) != len(wanted):
        missing = ", ".join(str(parameter) for parameter in wanted[len(declared.argtypes) :])
        without = f"; missing at the end: {missing}" if missing else ""
        found.append(
            f"{prototype.name} is declared with {len(declared.argtypes)} arguments, "
            f"but the header has {len(wanted)}{without}{where}"
        )
    return found


def _name(ctype: Any) -> str:
    return "void" if ctype is None else getattr(ctype, "__name__", repr(ctype))
