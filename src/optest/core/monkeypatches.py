"""Detection of replaced names that references and comparisons depend on; a replaced name is restored.

A quick check compares the names of NumPy, ml_dtypes, ``math`` and ``builtins`` that optest's references and comparison
look up, and the entry points of the comparison. A thorough check compares all names of these modules, of optest's
modules and of NumPy's modules that its own functions use, the code and defaults of optest's functions, its classes and
the dtypes. It is no defence against code that knows of it.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from operator import attrgetter, is_, itemgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from optest.registry import load_object
from optest.spec.dtypes import DTYPES

# Imported before anything is recorded: a plug-in that is the first to import one of them could patch it unnoticed.
_LOADED_FIRST = ("ml_dtypes:bfloat16", "optest.core.runner:execute")
# A quick check compares all names of ml_dtypes, and those of the other modules that the functions of `_USERS` look up.
_FOREIGN = ("numpy", "numpy.linalg", "math", "builtins")
_USERS = re.compile(r"optest\.(compare|core|generators|numerics|operators|spec)\b")
# A quick check compares the functions in these modules, and the insides of this function or class of each.
_OFTEN = {
    "optest.compare.verdict": "compare_outputs",
    "optest.core.comparison": "Comparison",
    "optest.core.expected": "expected_outputs",
    "optest.core.verdicts": "verdict_of",
    "optest.spec.outcome": "Verdict",
}
_INSIDES = ("__code__", "__defaults__", "__kwdefaults__")
# A thorough check compares all names of these modules, and the insides of all functions and classes of `_USERS`.
_WATCHED = re.compile(
    _USERS.pattern + r"|optest\.registry$|math$|builtins$|ml_dtypes$|numpy$|numpy\.linalg(\._linalg)?$"
    r"|numpy\._core\.(umath|multiarray|numeric|fromnumeric|_methods)$|numpy\.lib\._\w*(function|shape)_base_impl$"
)

# Python itself, or an import, sets these.
_CHANGES_BY_ITSELF = frozenset({"__warningregistry__", "__annotations__", "__abstractmethods__", "__doc__"})
_GONE = object()


@cache
def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return an attrgetter of at least two names; of one name it would not return a tuple."""
    return attrgetter(*names)


class Names:
    """Recorded entries ``names`` of the dictionary of a module or class; ``put`` stores an entry in it."""

    __slots__ = ("_entries", "_get", "_label", "_names", "_put", "_values")

    def __init__(
        self, label: str, entries: Mapping[str, Any], names: Sequence[str], put: Callable[[str, Any], None]
    ) -> None:
        self._label, self._entries, self._put = label, entries, put
        names = [name for name in names if name not in _CHANGES_BY_ITSELF]
        self._names = names if len(names) > 1 else names * 2  # an itemgetter of one name returns no tuple
        self._get = itemgetter(*self._names)
        self._values = self._get(entries)

    def renew(self) -> None:
        """Record the present values; a name that was deleted is not watched any more."""
        self._values = tuple(map(self._entries.get, self._names))

    def those_of(self, names: Collection[str]) -> Names:
        """Return a record of only these names, with the values that are recorded here."""
        recorded = dict(zip(self._names, self._values, strict=True))
        kept = [name for name in recorded if name in names and recorded[name] is not None]
        part = Names(self._label, recorded, kept, self._put)
        part._entries = self._entries
        return part

    def replaced(self) -> list[str]:
        """Restore the entries that were replaced or deleted and return their dotted names.

        New entries are ignored, and so is an entry that was None: a cache that was filled since.
        """
        # Not `==`: the `__eq__` of a replacement could return True.
        with suppress(KeyError):  # one was deleted
            if all(map(is_, self._get(self._entries), self._values)):
                return []
        replaced = []
        for name, value in zip(self._names, self._values, strict=True):
            if value is not None and self._entries.get(name, _GONE) is not value:
                self._put(name, value)
                replaced.append(f"{self._label}.{name}")
        self.renew()
        return replaced


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


class PatchWatch:
    """The watched names with the values that they had at first; :meth:`replaced` restores those that changed."""

    __slots__ = ("_classes", "_count", "_dtypes", "_functions", "_insides", "_looked_up", "_modules", "_quick")

    def __init__(self) -> None:
        for path in _LOADED_FIRST:
            load_object(path)
        fields = tuple(field.name for field in dataclasses.fields(DTYPES[0]))
        self._dtypes = [Record.of(f"dtype {dtype.name}", dtype, fields) for dtype in DTYPES]
        self._modules: dict[str, Names] = {}
        self._classes: dict[type, Names] = {}
        self._functions: dict[FunctionType, str] = {}  # with their dotted names
        self._insides: list[Any] = []  # of the functions
        self._looked_up: set[str] = set()  # names in the code of the functions
        self._add_modules()

    def renew(self) -> None:
        """Record the present values, except those of dtypes, which must never change."""
        for names in (*self._modules.values(), *self._classes.values()):
            names.renew()
        self._insides = [*chain.from_iterable(map(_getter(_INSIDES), self._functions))]
        self._add_modules()

    def replaced(self, *, thorough: bool = False) -> list[str]:
        """Restore replaced names and return them; add modules that were imported since.

        Only a thorough check covers all watched names.
        """
        names = [name for record in self._quick for name in record.replaced()]
        if thorough:
            for entries in (*self._modules.values(), *self._classes.values()):
                names += entries.replaced()
            for record in self._dtypes:
                names += record.replaced()
            if not all(map(is_, chain.from_iterable(map(_getter(_INSIDES), self._functions)), self._insides)):
                for index, (function, label) in enumerate(self._functions.items()):
                    values = self._insides[index * len(_INSIDES) : (index + 1) * len(_INSIDES)]
                    names += Record(label, function, _INSIDES, tuple(values)).replaced()
        if len(sys.modules) != self._count:
            self._add_modules()
        return names

    def names_at(self, hooks: Iterable[object]) -> list[Names]:
        """Load the built-in functions at the import paths among ``hooks``, and return records of their names."""
        paths = [hook for hook in hooks if isinstance(hook, str) and _USERS.match(hook)]
        for path in paths:
            load_object(path)
        if len(sys.modules) != self._count:
            self._add_modules()
        return [self._modules[module].those_of([name]) for module, name in (path.split(":") for path in paths)]

    def _add_modules(self) -> None:
        """Watch the modules that have been imported since the last call."""
        for name, module in [*sys.modules.items()]:
            if name not in self._modules and _WATCHED.match(name) and type(module) is ModuleType:
                entries = vars(module)
                self._modules[name] = Names(name, entries, [*entries], entries.__setitem__)
                if _USERS.match(name):
                    self._add_contents(name)
        self._count = len(sys.modules)
        self._quick: list[Names | Record] = [self._modules[name].those_of(self._looked_up) for name in _FOREIGN]
        self._quick.append(self._modules["ml_dtypes"])
        for name, label in _OFTEN.items():
            entries = vars(sys.modules[name])
            functions = [key for key, value in entries.items() if isinstance(value, FunctionType)]
            self._quick.append(self._modules[name].those_of(functions))
            owner = entries[label]
            self._quick.append(self._classes.get(owner) or Record.of(f"{name}.{label}", owner, _INSIDES))

    def _add_contents(self, name: str) -> None:
        """Watch the insides of the functions and classes of a module, and collect the names that they look up."""
        for owner in [x for x in vars(sys.modules[name]).values() if getattr(x, "__module__", None) == name]:
            label, members = name, [owner]
            if isinstance(owner, type):
                label, members = f"{name}.{owner.__qualname__}", [*vars(owner).values()]
                put = partial(type.__setattr__, owner)
                self._classes[owner] = Names(label, vars(owner), [*vars(owner)], put)
            for function in dict.fromkeys(x for member in members for x in _functions(member)):
                if function not in self._functions:
                    self._functions[function] = f"{label}.{function.__name__}"
                    self._insides += _getter(_INSIDES)(function)
                    self._looked_up.update(_names_in(function.__code__))


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield a function and those that it wraps by ``functools.wraps`` or ``lru_cache``; a property's getter, too."""
    value = getattr(value, "fget", getattr(value, "__func__", value))
    while value is not None:
        if isinstance(value, FunctionType):
            yield value
        value = getattr(value, "__wrapped__", None)


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that a function's code, or code within it, looks up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


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
