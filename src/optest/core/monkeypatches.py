"""Detection of replaced names that references and comparisons depend on; a replaced name is restored.

Watched are the modules of NumPy, ml_dtypes and optest, ``math`` and ``builtins``, and in optest's modules also the
functions (code and defaults), the classes and the dtypes. It is no defence against code that knows of it.
"""

# A check reads the version that CPython keeps of every dictionary (PEP 509) and the pointers of functions, some
# nanoseconds each, and compares names only if these have changed; on other Pythons it compares all names, which takes
# longer.

from __future__ import annotations

import ctypes
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from gc import get_referents
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from optest.registry import load_object
from optest.spec.dtypes import DTYPES

_WATCHED = ("numpy", "ml_dtypes", "math", "builtins", "optest")
# Imported before anything is recorded: a plug-in that is the first to import one of them could patch it unnoticed.
_LOADED_FIRST = ("ml_dtypes:bfloat16", "optest.core.runner:execute", "optest.compare.verdict:compare_outputs")

# Modules that every check compares, and those whose functions and classes it does; a thorough check compares the rest.
_MODULES_OFTEN = re.compile(
    r"optest\.(compare|core|numerics|operators|registry|spec)\b|math$|builtins$|ml_dtypes$|numpy$|numpy\.linalg"
    r"|numpy\._core\.(umath|multiarray|numeric|fromnumeric|_methods)$|numpy\.lib\._\w*(function|shape)_base_impl$"
)
_INSIDES_OFTEN = re.compile(r"optest\.compare\b|optest\.core\.(comparison|verdicts|expected)$|optest\.spec\.outcome$")

# Python itself, or an import, sets these.
_CHANGES_BY_ITSELF = frozenset({"__warningregistry__", "__annotations__", "__abstractmethods__", "__doc__"})
_GONE = object()
_WORD_BYTES = ctypes.sizeof(ctypes.c_uint64)
# Of a dictionary on CPython 3.10 to 3.13, after the reference count, the type and the number of entries.
_VERSION_OFFSET = 3 * _WORD_BYTES
# Words from the pointer to a function's code on; its defaults are among them on every version.
_POINTERS_OF_FUNCTION = 4


@cache
def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return an attrgetter of at least two names; of one name it would not return a tuple."""
    return attrgetter(*names)


class _Names(NamedTuple):
    """Recorded entries of the dictionary of a module or class; ``put`` stores an entry in it."""

    label: str
    entries: Mapping[str, Any]
    recorded: dict[str, Any]
    put: Callable[[str, Any], None]

    def replaced(self) -> list[str]:
        """Restore the entries that were replaced or deleted and return their dotted names; ignore new entries."""
        names = []
        for name, value in self.recorded.items():
            present = self.entries.get(name, _GONE)
            if present is value or name in _CHANGES_BY_ITSELF:
                continue
            if value is None:  # a cache that was filled since
                self.recorded[name] = present
                continue
            self.put(name, value)
            names.append(f"{self.label}.{name}")
        return names

    def renewed(self) -> _Names:
        return self._replace(recorded=dict(self.entries))


class Record(NamedTuple):
    """Recorded values of some attributes of an object."""

    label: str
    owner: Any
    names: tuple[str, ...]
    values: tuple[Any, ...]

    @classmethod
    def of(cls, label: str, owner: Any, names: tuple[str, ...]) -> Record:
        """Record the present values of the attributes ``names``, at least two, of ``owner``."""
        return cls(label, owner, names, _getter(names)(owner))

    def replaced(self) -> list[str]:
        """Restore the attributes that were replaced or deleted and return their dotted names."""
        try:
            present_values = _getter(self.names)(self.owner)
        except AttributeError:  # one was deleted
            present_values = tuple([getattr(self.owner, name, _GONE) for name in self.names])
        if all(map(is_, present_values, self.values)):
            return []
        labels = []
        for name, value, present in zip(self.names, self.values, present_values, strict=True):
            if value is not present:
                object.__setattr__(self.owner, name, value)  # the owner may be a frozen dataclass
                labels.append(f"{self.label}.{name}")
        return labels

    def renewed(self) -> Record:
        return Record.of(self.label, self.owner, self.names)


class _Group:
    """Records that are checked together, each with a view of the memory words that change when it may have changed."""

    __slots__ = ("_records", "_versions", "_views")

    def __init__(self) -> None:
        self._records: list[_Names | Record] = []
        self._views: list[memoryview] = []
        self._versions = b""  # the words of all views at the last check

    def add(self, record: _Names | Record, view: memoryview) -> None:
        self._records.append(record)
        self._views.append(view)
        self._versions += view

    def replaced(self) -> list[str]:
        """Restore what was replaced since the last check and return the dotted names."""
        if self._is_unchanged():
            return []
        names, offset = [], 0
        for record, view in zip(self._records, self._views, strict=True):
            if self._versions[offset : offset + len(view)] != view or not _HAS_VERSIONS:
                names += record.replaced()
            offset += len(view)
        self._versions = b"".join(self._views)  # restoring changes versions, too
        return names

    def renew(self) -> None:
        """Record the present values."""
        if not self._is_unchanged():
            self._records = [record.renewed() for record in self._records]
            self._versions = b"".join(self._views)

    def _is_unchanged(self) -> bool:
        return _HAS_VERSIONS and b"".join(self._views) == self._versions


class PatchWatch:
    """The watched names with the values that they had at first; :meth:`replaced` restores those that changed."""

    __slots__ = ("_count", "_dtypes", "_known", "_often", "_seldom")

    def __init__(self) -> None:
        for path in _LOADED_FIRST:
            load_object(path)
        self._known: set[str] = set()
        self._often, self._seldom = _Group(), _Group()
        self._count = 0  # of modules that were imported when new ones were last added
        self._add_modules()
        fields = tuple(field.name for field in dataclasses.fields(DTYPES[0]))
        self._dtypes = [Record.of(f"dtype {dtype.name}", dtype, fields) for dtype in DTYPES]

    def replaced(self, *, thorough: bool = False) -> list[str]:
        """Restore replaced names and return them; add modules that were imported since.

        Only a thorough check covers all watched names.
        """
        names = self._often.replaced()
        if thorough:
            names += self._seldom.replaced()
            for record in self._dtypes:
                names += record.replaced()
        if len(sys.modules) != self._count:
            self._add_modules()
        return names

    def renew(self) -> None:
        """Record the present values, except those of dtypes, which must never change."""
        self._often.renew()
        self._seldom.renew()

    def _add_modules(self) -> None:
        """Watch the modules that have been imported since the last call."""
        for name, module in [*sys.modules.items()]:
            if name.partition(".")[0] in _WATCHED and name not in self._known and type(module) is ModuleType:
                self._known.add(name)
                self._add_module(name, vars(module))
        self._count = len(sys.modules)

    def _add_module(self, name: str, entries: dict[str, Any]) -> None:
        """Watch the names of a module; of one of optest also its functions, classes and their methods."""
        group = self._often if _MODULES_OFTEN.match(name) else self._seldom
        group.add(_Names(name, entries, dict(entries), entries.__setitem__), _version_of(entries))
        if not name.startswith("optest."):
            return
        group = self._often if _INSIDES_OFTEN.match(name) else self._seldom
        for owner in [value for value in entries.values() if getattr(value, "__module__", None) == name]:
            if isinstance(owner, type):
                label, put = f"{name}.{owner.__qualname__}", partial(type.__setattr__, owner)
                # `vars` of a class is a proxy; the dictionary behind it has the version
                version = _version_of(get_referents(vars(owner))[0])
                group.add(_Names(label, vars(owner), dict(vars(owner)), put), version)
                for method in [value for value in vars(owner).values() if isinstance(value, FunctionType)]:
                    _add_function(self._seldom, label, method)
            else:
                _add_function(group, name, owner)


def _add_function(group: _Group, where: str, function: Any) -> None:
    """Add a function to the group, and the functions that it wraps by ``functools.wraps`` or ``lru_cache``."""
    while function is not None:
        if isinstance(function, FunctionType):
            label = f"{where}.{function.__name__}"
            record = Record.of(label, function, ("__code__", "__defaults__", "__kwdefaults__"))
            group.add(record, _pointers_of(function))
        function = getattr(function, "__wrapped__", None)


@cache
def patch_watch() -> PatchWatch:
    """Return the only watch of this process; the first call creates it."""
    return PatchWatch()


def patched_before() -> list[str]:
    """Return the functions of the module ``numpy`` that were replaced before the watch began.

    These are Python functions of another package, and ufuncs that differ from those in ``numpy._core``.
    """
    ufuncs, dispatcher = vars(sys.modules["numpy._core.umath"]), type(np.sum)
    names = []
    for name, value in vars(np).items():
        if isinstance(value, FunctionType):
            is_foreign = not value.__globals__["__name__"].startswith(("numpy", "contextlib"))
        else:
            ufunc = ufuncs.get(name)
            is_foreign = isinstance(ufunc, np.ufunc) and ufunc is not value and type(value) is not dispatcher
        if is_foreign:
            names.append(f"numpy.{name}")
    return names


def _version_of(entries: Any) -> memoryview:
    """Return a view of the version of a dictionary; an empty one on a Python without versions."""
    return _words(id(entries) + _VERSION_OFFSET, 1) if _HAS_VERSIONS else memoryview(b"")


def _pointers_of(function: FunctionType) -> memoryview:
    """Return a view of the words that point to a function's code and defaults; an empty one without versions."""
    if not _HAS_VERSIONS:
        return memoryview(b"")
    count = function.__sizeof__() // _WORD_BYTES
    words = (ctypes.c_uint64 * count).from_address(id(function))
    index = [*words].index(id(function.__code__))  # the offset differs by Python version
    return _words(id(function) + index * _WORD_BYTES, min(_POINTERS_OF_FUNCTION, count - index))


def _words(address: int, count: int) -> memoryview:
    """Return a view of ``count`` 64-bit words of memory, which shows later changes."""
    return memoryview((ctypes.c_uint64 * count).from_address(address)).cast("B")


def _has_versions() -> bool:
    """Return whether dictionaries have a version at the expected offset: a word that each new value changes."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14) or sys.maxsize < 1 << 32:
        return False
    probe: dict[str, Any] = {"one": 1, "two": 2}
    view = _words(id(probe) + _VERSION_OFFSET, 1)
    seen = [bytes(view)]
    for value in (3, 4):
        probe["one"] = value
        seen.append(bytes(view))
    probe.get("one")
    return len({*seen}) == len(seen) and bytes(view) == seen[-1]


_HAS_VERSIONS = _has_versions()
