"""Cases made by hand: operators that are not in the catalogue, with references of three lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from optest.backends import _BUILTINS, BackendDriver, BackendManager
from optest.clib.library.subject import Subject
from optest.spec import Argument, BackendTarget, Fill, OperatorDescriptor, TensorSpec, TestCase, dtype


def spec(kind: str, *shape: int, **layout: Any) -> TensorSpec:
    return TensorSpec(dtype=dtype(kind), shape=shape, **layout)


def _sum_of_both(inputs: Any, _attributes: Any) -> Any:
    return (inputs[0].astype(np.float64) + inputs[1].astype(np.float64),)


ADD = OperatorDescriptor(name="add", signature="input, other -> out", reference=_sum_of_both)


def case_of(descriptor: OperatorDescriptor, *inputs: TensorSpec, **fields: Any) -> TestCase:
    arguments = tuple(
        Argument(name=descriptor.tensors.input_name(index), path=f"input{index}", spec=each, fill=Fill(kind="randn"))
        for index, each in enumerate(inputs)
    )
    return TestCase(descriptor=descriptor, inputs=arguments, **fields)


def command_case(
    section: str = "command", *, kind: str = "float32", chip: str | None = None, **fields: Any
) -> TestCase:
    """``add`` of two 2x3 tensors with the configuration ``config``."""
    config = fields.pop("config", {})
    fields.setdefault("outputs", (spec(kind, 2, 3),))
    fields.setdefault("timeout_s", 200.0)
    return case_of(
        ADD,
        spec(kind, 2, 3),
        spec(kind, 2, 3),
        backend=BackendTarget(name=section, chip=chip),
        backend_config={section: config},
        **fields,
    )


def command_driver(name: str = "command") -> BackendDriver:
    return BackendManager(_BUILTINS).get(name)


def inputs(kind: str = "float32") -> list[np.ndarray[Any, Any]]:
    first = np.arange(6, dtype=np.float64).reshape(2, 3)
    return [first.astype(kind), (first * 10).astype(kind)]


class PythonCall:
    """A function of Python in place of a call of C; nothing is made for it."""

    function = SimpleNamespace(name="")

    def __init__(self, run: Callable[[Mapping[str, Any]], None]) -> None:
        self._run = run

    def __call__(self, pointers: Mapping[str, Any]) -> None:
        self._run(pointers)


def subject_of(run: Callable[[Mapping[str, Any]], None]) -> Subject:
    call: Any = PythonCall(run)
    return Subject(call)
