"""Around ``torch.compile``: its compilations and their time, its cache, its log, and compilers that compile nothing."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from optest.settings import environment, variables_set

__all__ = ["Compilation", "Watched", "keep_headers_in_cache", "load_compiler", "refusals_unlogged", "watched"]


@dataclass(slots=True)
class Compilation:
    """Every compilation of a call, that of its way back too, which begins when the call is over."""

    seconds: float = 0.0
    was_begun: bool = False
    _since: float | None = None
    _backward_failures: list[BaseException] = field(default_factory=list)

    def failed_by(self, error: BaseException) -> bool:
        """Whether the error ended the compilation of a backward graph, which torch does not wrap as it does others."""
        return any(error is each for each in self._backward_failures)

    def _begin(self, _: Any) -> None:
        self.was_begun = True
        self._since = perf_counter()

    def _end(self, arguments: Any) -> None:
        if self._since is not None:
            self.seconds += perf_counter() - self._since
            self._since = None
        error = sys.exc_info()[1]
        if error is not None and arguments.callback_trigger.name == "LAZY_BACKWARD":
            self._backward_failures.append(error)


@contextmanager
def watched(found: Compilation) -> Iterator[None]:
    """Note the compilations within."""
    from torch._dynamo import callback  # which a run that compiles nothing does not wait for

    handler = callback.callback_handler
    handler.register_start_callback(found._begin)
    handler.register_end_callback(found._end)
    try:
        yield
    finally:
        handler.remove_start_callback(found._begin)
        handler.remove_end_callback(found._end)


# Where inductor keeps what it makes: in the run's folder alone, nothing of it beside the user's other files.

_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@lru_cache(maxsize=1)
def load_compiler() -> None:
    """Import torch's compiler, which makes a folder for its cache as it is loaded: a worker has been told where.

    Whoever only asks for the names of compilers has no use for one.
    """
    if _CACHE in environment():
        import torch._dynamo
    else:
        with TemporaryDirectory(prefix="optest-") as folder, variables_set({_CACHE: folder}):
            import torch._dynamo  # noqa: F401


def keep_headers_in_cache() -> None:
    """Compiled headers, too, belong to the cache that is stated now; inductor puts them into the temporary folder."""
    stated = environment().get(_CACHE)
    if stated is None:
        return
    from torch._inductor import codecache

    for name, folders in (("_HEADER_DIR", ()), ("_HEADER_LOCK_DIR", ("locks",))):
        if hasattr(codecache, name):
            setattr(codecache, name, os.path.join(stated, "precompiled_headers", *folders))


# Compilers that hand back what they got: the call is made by eager torch then, and nothing of it was compiled.

_Compiler = Callable[..., Any]


@dataclass(slots=True)
class Watched:
    """A compiler by its name, and whether it handed back a graph that it had not changed."""

    name: str
    handed_back: bool = False

    def compiler(self) -> str | _Compiler:
        """What ``torch.compile`` takes. Torch's own compilers go by their names: who asks for ``eager_debug`` knows."""
        function: Any = torch._dynamo.backends.registry.lookup_backend(self.name)
        if str(getattr(function, "__module__", "torch")).partition(".")[0] == "torch":
            return self.name

        @wraps(function)
        def watched(graph: Any, *rest: Any, **options: Any) -> Any:
            before = _calls_of(graph)
            made = function(graph, *rest, **options)
            if _makes_the_calls_of(made, graph) and _calls_of(graph) == before:
                self.handed_back = True
            return made

        watched.__name__ = self.name  # which torch tells when the compiler fails
        return watched


def _calls_of(graph: Any) -> list[tuple[Any, ...]]:
    """Passes over a graph change it in place, and hand it back rightly."""
    return [(node.op, node.target, str(node.args), str(node.kwargs)) for node in graph.graph.nodes]


def _makes_the_calls_of(made: Any, graph: Any) -> bool:
    owner = getattr(made, "__self__", made)
    return owner is graph or (type(owner) is torch.fx.Interpreter and owner.module is graph)


# What torch logs while it traces a call that it refuses: the refusal is raised as well, and a verdict says it.

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")
_TEXT = "failed while attempting to run meta for"


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_TEXT)


@contextmanager
def refusals_unlogged() -> Iterator[None]:
    """Keep off the terminal that a kernel without values raised; whatever else torch logs is logged."""
    _LOGGER.addFilter(_is_no_refusal)
    try:
        yield
    finally:
        _LOGGER.removeFilter(_is_no_refusal)
