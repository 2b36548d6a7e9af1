"""Cases, a driver and workers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from optest.api import cases
from optest.backends import BackendDriver
from optest.core.runner import execute
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.operators import operators
from optest.settings import environment
from optest.spec import Argument, Fill, Numerics, OperatorDescriptor, TensorSpec, TestCase, Verdict, dtype

Kernel = Callable[..., Any]
RANDN = Fill(kind="randn")


def spec_of(*shape: int, kind: str = "float32", **layout: Any) -> TensorSpec:
    return TensorSpec(dtype=dtype(kind), shape=shape, **layout)


def values_of(*values: Any) -> Fill:
    return Fill(kind="data", parameters={"values": list(values)})


def case_of(
    operator: OperatorDescriptor | str,
    *specs: TensorSpec,
    fill: Fill | Sequence[Fill] = RANDN,
    attributes: Mapping[str, Any] | None = None,
    **more: Any,
) -> TestCase:
    """Return a case whose inputs have ``specs``."""
    descriptor = operators.get(operator) if isinstance(operator, str) else operator
    fills = [fill] * len(specs) if isinstance(fill, Fill) else fill
    inputs = tuple(
        Argument(name=descriptor.tensors.input_name(index), path=f"input{index}", spec=spec, fill=fill)
        for index, (spec, fill) in enumerate(zip(specs, fills, strict=True))
    )
    return TestCase(descriptor=descriptor, inputs=inputs, attributes=descriptor.bind(attributes or {}), **more)


def planned_case(folder: Path, op: str, dtypes: Any = "float32", **entry: Any) -> TestCase:
    """Return the only case of a plan with one entry."""
    plan = folder / "plan.yaml"
    plan.write_text(yaml.safe_dump({"version": 1, "cases": [{"op": op, "dtypes": dtypes, **entry}]}))
    (case,) = cases(plan=str(plan))
    return case


def raising(error: BaseException) -> Kernel:
    """Return a function that raises ``error``, whatever it is called with."""

    def raises(*_: Any, **__: Any) -> Any:
        raise error

    return raises


class Calls(BackendDriver):
    """Driver that calls a function of the inputs and records the shapes of the first."""

    name, kind = "calls", "cpu"

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.shapes: list[tuple[int, ...]] = []

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Any:
        self.shapes.append(inputs[0].shape)
        with np.errstate(all="ignore"):
            return self.kernel(*inputs)


class Answering(BackendDriver):
    """Driver that runs a function of the case and its inputs."""

    name, kind = "answering", "faulty"

    def __init__(self, answer: Callable[[TestCase, Any], Any], numerics: Numerics | None = None) -> None:
        self._answer = answer
        self.numerics = numerics or Numerics()

    def run(self, case: TestCase, inputs: Any) -> Any:
        return self._answer(case, inputs)


def verdict_of(driver: BackendDriver | Kernel, case: TestCase) -> Verdict:
    return execute([case], driver if isinstance(driver, BackendDriver) else Calls(driver)).verdicts[0]


@contextmanager
def worker_of(
    driver: str, folder: Path, *plugins: str, variables: Mapping[str, str] | None = None, **options: Any
) -> Iterator[WorkerProcess]:
    """Yield a worker that is closed at the end."""
    surroundings = {**environment(), **(variables or {})}
    settings = WorkerOptions(driver=driver, scratch=folder, environment=surroundings, plugins=plugins, **options)
    worker = WorkerProcess(settings, "worker")
    try:
        yield worker
    finally:
        worker.close()


@contextmanager
def plugin_in(folder: Path, name: str, text: str) -> Iterator[None]:
    """Register the backend of a plug-in with the source ``text``, importable as long as the block runs."""
    (folder / f"{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        __import__(name).register()
        yield
