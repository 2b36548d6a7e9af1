"""Functions of this process as a backend: also those of a script, a notebook or a test, which no worker can import."""

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

_DEVICES = ("cuda", "npu", "xpu", "mps")
"""Parts of torch that know whether they have a context in this process, which no fork can use."""
_THREADED = ("jax", "tensorflow")
"""Frameworks whose threads hold locks when the process forks."""


def backend_of(
    functions: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    given: Mapping[str, Any],
    numerics: Numerics | None,
) -> FunctionsHere:
    """A driver that calls these functions, each for its operator, as the options in ``given`` say.

    Raises:
        UsageError, UnknownName: for what is no function, an operator that there is not, an option that needs workers,
            and ``isolate="case"`` where functions cannot run in forks.
    """
    load_extensions()
    stated: Sequence[str] = given.get("op") or ()
    isolate = given.get("isolate", "auto")
    if isinstance(functions, Mapping):
        named = dict(functions)
    elif len(stated) < 2:
        named = {next(iter(stated), ""): functions}
    else:
        raise UsageError(f"op is {', '.join(stated)}, but a function is for one operator; give a mapping by operator")
    if isolate not in ("auto", "none", "case"):
        raise UsageError(f"isolate is {isolate!r}, but should be auto, none or case for functions of this process")
    for option in ("jobs", "bench", "backend"):
        if given.get(option):
            raise UsageError(f"{option} is not for functions of this process; name one: 'my_kernels:softmax'")
    why_not = _why_no_forks(given.get("torch_device"))
    if isolate == "case" and why_not:
        raise UsageError(f"isolate is 'case', but {why_not}")
    return (FunctionsHere if isolate == "none" or why_not else _InForks)(_kernels(named, numerics))


def _kernels(named: Mapping[str, Any], numerics: Numerics | None) -> dict[str, Kernel]:
    """By operator."""
    kernels = {}
    for name, function in named.items():
        if not callable(function):
            raise UsageError(f"the function for {name} is {function!r}, but should be callable")
        found = kernel_of(function, name)
        kernels[operators.get(found.operator).name] = replace(found, numerics=numerics or found.numerics)
    return kernels


def _why_no_forks(device: str | None) -> str:
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
    """Calls them in this process."""

    options: tuple[str, ...] = tuple(name for name in FunctionBackend.options if name != "function")

    def __init__(self, functions: Mapping[str, Kernel]) -> None:
        super().__init__()
        self._kernels.update(functions)
        self.asked = tuple(functions)
        self.name = ",".join(each.name for each in functions.values())

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        return None if descriptor.name in self._kernels else f"not among {', '.join(self._kernels)}"

    def _kernel(self, case: TestCase) -> Kernel | None:
        return self._kernels.get(case.descriptor.name)


class _InForks(FunctionsHere):
    """Calls each of them in a fork of this process, for each case anew."""

    def executor(self, folder: Path) -> Executor:  # noqa: ARG002 - part of the protocol
        return InForks(InProcess(self, every_measure=True))

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
        torch = sys.modules.get("torch")
        if torch is not None:  # its pool of threads does not live on in a fork, which would wait for it for ever
            torch.set_num_threads(1)
        return super().run(case, inputs)
