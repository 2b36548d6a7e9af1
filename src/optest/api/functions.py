"""Functions of this process as a backend, such as functions of a notebook or a test, which no worker can import."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from optest.backends.function import FunctionBackend, Kernel, kernel_of
from optest.core.executors import Executor, InProcess
from optest.core.extensions import load_extensions
from optest.core.forked import InForks
from optest.errors import UsageError
from optest.operators import operators
from optest.spec import Numerics, OperatorDescriptor, TestCase

# A fork cannot use a context that torch has opened on one of these devices.
_DEVICES = ("cuda", "npu", "xpu", "mps")
# Threads of these frameworks may hold locks when the process forks.
_THREADED = ("jax", "tensorflow")


def backend_of(
    functions: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    options: Mapping[str, Any],
    numerics: Numerics | None,
) -> FunctionsHere:
    """Return a driver that calls these functions, in forks unless ``isolate`` or an open device forbids it.

    Raises:
        UsageError, UnknownName: for an object that is not callable, an unknown operator, an option that needs workers,
            and ``isolate="case"`` if functions cannot run in forks.
    """
    load_extensions()
    names: Sequence[str] = options.get("op") or ()
    isolate = options.get("isolate", "auto")
    if isinstance(functions, Mapping):
        named = dict(functions)
    elif len(names) < 2:
        named = {next(iter(names), ""): functions}
    else:
        raise UsageError(f"op is {', '.join(names)}, expected one operator for a function; pass a mapping by operator")
    if isolate not in ("auto", "none", "case"):
        raise UsageError(f"isolate is {isolate!r}, expected auto, none or case for functions of this process")
    for option in ("jobs", "bench", "backend"):
        if options.get(option):
            raise UsageError(
                f"{option} is not for functions of this process; drop it, or pass the name: 'my_kernels:softmax'"
            )
    obstacle = _obstacle_to_forks(options.get("torch_device"))
    if isolate == "case" and obstacle:
        raise UsageError(f"isolate is 'case', but {obstacle}; use isolate='none'")
    kernels: dict[str, Kernel] = {}
    for name, function in named.items():
        if not callable(function):
            raise UsageError(f"the function for {name} is {function!r}, expected a callable")
        kernel = kernel_of(function, name)
        kernels[operators.get(kernel.operator).name] = replace(kernel, numerics=numerics or kernel.numerics)
    return (FunctionsHere if isolate == "none" or obstacle else _FunctionsInForks)(kernels)


def _obstacle_to_forks(device: str | None) -> str:
    """Return why functions cannot run in forks of this process, "" if they can."""
    if not hasattr(os, "fork"):
        return "this system has no forks"
    if device not in (None, "cpu"):
        return f"a fork cannot use {device} when this process does"
    torch = sys.modules.get("torch")
    for name in _DEVICES:
        if getattr(getattr(torch, name, None), "is_initialized", lambda: False)():
            return f"torch.{name} is in use in this process, and a fork cannot use it"
    loaded = next((name for name in _THREADED if name in sys.modules), "")
    return f"{loaded} has threads in this process, and a fork may hang" if loaded else ""


class FunctionsHere(FunctionBackend):
    """A driver that calls functions in this process."""

    options: tuple[str, ...] = tuple(name for name in FunctionBackend.options if name != "function")

    def __init__(self, functions: Mapping[str, Kernel]) -> None:
        super().__init__()
        self._kernels.update(functions)
        self.operator_names = tuple(functions)
        self.name = ",".join(x.name for x in functions.values())

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        return None if descriptor.name in self._kernels else f"not among {', '.join(self._kernels)}"

    def _kernel(self, case: TestCase) -> Kernel | None:
        return self._kernels.get(case.descriptor.name)


class _FunctionsInForks(FunctionsHere):
    """A driver that calls a function in a new fork of this process for each case."""

    def executor(self, folder: Path) -> Executor:  # noqa: ARG002 - part of the protocol
        return InForks(InProcess(self, every_measure=True))

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
        torch = sys.modules.get("torch")
        if torch is not None:  # its pool of threads does not survive a fork, which would wait for it for ever
            torch.set_num_threads(1)
        return super().run(case, inputs)
