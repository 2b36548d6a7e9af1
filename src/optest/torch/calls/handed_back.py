"""Compilers that hand back what they got: the call is made by eager torch then, and nothing of it was compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

__all__ = ["Watched"]

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
