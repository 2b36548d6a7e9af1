"""What torch.compile does until it has something to run: how long that takes, and that it failed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

__all__ = ["Compilation", "watched"]


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
