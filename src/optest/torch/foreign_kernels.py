"""Operators of torch for which somebody else registered a kernel: torch on the CPU is no reference for these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["foreign_kernels", "foreign_kernels_used"]

_REGISTERED = re.compile(r"^(?P<key>\w+)[^:]*: registered at (?P<file>.*?):\d+", re.M)
"""A line of what the dispatcher knows of an operator: ``CPU: registered at FILE:LINE``; ``debug`` is its schema."""

_KEYS_OF_A_CPU = re.compile(r"debug|CPU|AutogradCPU|Autograd|ADInplaceOrView|Composite\w*|BackendSelect")
_PACKAGE = str(Path(torch.__file__).parent)
_SOURCES = "/pytorch/"
"""In the paths of the files that torch itself was built from."""


def foreign_kernels() -> frozenset[str]:
    """The operators with a kernel for the CPU, or a schema, from a file that is none of torch's: ``aten::silu``.

    Operators of other libraries' own namespaces are not meant: their names say whose they are.
    """
    return _found(len(torch.library._impls), len(torch.library._defs), len(torch.ops.loaded_libraries))


@lru_cache(maxsize=4)
def _found(*_registrations: int) -> frozenset[str]:
    """Asked again when something was registered since; asking of all operators takes a tenth of a second."""
    names = torch._C._dispatch_get_all_op_names()
    return frozenset(name.partition(".")[0] for name in names if _is_foreign(torch._C._dispatch_dump(name)))


def _is_foreign(dump: str) -> bool:
    return any(
        _KEYS_OF_A_CPU.fullmatch(found["key"]) and _SOURCES not in found["file"] and _PACKAGE not in found["file"]
        for found in _REGISTERED.finditer(dump)
    )


@contextmanager
def foreign_kernels_used(operator: str) -> Iterator[list[str]]:
    """The foreign kernels among what a call of ``operator`` makes while inside, in the list when it is left."""
    used: list[str] = []
    if not (known := foreign_kernels()):
        yield used
        return
    with _Recorded() as calls:
        yield used
    used += sorted(known & {f"aten::{operator}", *calls.names})


class _Recorded(TorchDispatchMode):  # type: ignore[misc]
    """The names of the operators that reach a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))
