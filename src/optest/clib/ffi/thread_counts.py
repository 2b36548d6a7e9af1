"""How many threads a library uses, set from outside: by the functions that it or its runtime has, and by variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from optest.settings import variables_set

__all__ = ["KNOWN_FUNCTIONS", "ThreadCounts"]

Symbol = Callable[[str], Any]
"""A function of the library by name, None if it has none of that name."""

KNOWN_FUNCTIONS = {
    "openblas_set_num_threads": "openblas_get_num_threads",
    "omp_set_num_threads": "omp_get_max_threads",
    "MKL_Set_Num_Threads": "MKL_Get_Max_Threads",
}
"""What sets the number in runtimes that libraries bring along, and what tells it."""


class ThreadCounts:
    """Functions that take the number, and variables that are read whenever a descriptor is made or a call begins."""

    def __init__(self, functions: Sequence[str], variables: Sequence[str], symbol: Symbol) -> None:
        """``functions`` are the mapping's own; those of known runtimes are used where the library has them."""
        names = (*functions, *KNOWN_FUNCTIONS)
        self._functions = {name: found for name in names if (found := symbol(name)) is not None}
        getters = {name: symbol(KNOWN_FUNCTIONS.get(name, "")) for name in self._functions}
        self._counts = {name: getters[name]() if getters[name] is not None else 1 for name in self._functions}
        self._variables = tuple(variables)

    @property
    def means(self) -> str:
        """What sets the number, in words; empty if nothing does."""
        return ", ".join((*self._functions, *self._variables))

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """While inside, the library uses ``count`` threads, as far as it listens."""
        with variables_set(dict.fromkeys(self._variables, str(count))):
            for function in self._functions.values():
                function(count)
            try:
                yield
            finally:
                for name, function in self._functions.items():
                    function(self._counts[name])
