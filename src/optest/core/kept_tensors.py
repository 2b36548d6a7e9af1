"""Keeping the tensors of an execution where they are made, for ``optest replay --save``.

Inputs and expected outputs are on disk before the backend is asked, so that they survive whatever it does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import WritesOutputs
from optest.core import runner
from optest.core.expected import expected_outputs
from optest.core.inputs import make_inputs
from optest.core.outputs import in_order
from optest.core.phases import Phase
from optest.core.tensor_archive import Archive, write_archive
from optest.core.wire import case_to_wire
from optest.spec import Fault, TestCase

__all__ = ["execute_and_keep", "kept_actual", "kept_before"]


def kept_before(folder: Path, case: TestCase) -> Path:
    """Where inputs and expected outputs of a case are kept."""
    return folder / f"{_name(case)}.npz"


def kept_actual(folder: Path, case: TestCase) -> Path:
    """Where the outputs are kept that the backend handed over."""
    return folder / f"{_name(case)}.actual.npz"


def _name(case: TestCase) -> str:
    """Cases of one key have the same inputs; what they hand to the backend beside them may differ."""
    config = repr((case.backend_config, case.reference, case.base_dir))
    return f"{case.key.removeprefix('k1:')}-{hashlib.blake2b(config.encode(), digest_size=4).hexdigest()}"


def execute_and_keep(
    cases: Sequence[TestCase],
    driver: BackendDriver,
    *,
    folder: Path,
    announce: Callable[[Phase], None] = lambda _: None,
    **how: Any,
) -> runner.ExecutionResult:
    """As ``runner.execute``; inputs and reference are made once more, so that running stays as it is without this."""
    case = cases[0]
    with suppress(Fault):  # it will be the verdict, since inputs and reference are the same again
        _keep_before(case, driver, folder, announce)
    announce(Phase.IDLE)
    with _outputs_kept(driver, folder):
        return runner.execute(cases, driver, announce=announce, **how)


def _keep_before(case: TestCase, driver: BackendDriver, folder: Path, announce: Callable[[Phase], None]) -> None:
    announce(Phase.GENERATE)
    inputs, known = make_inputs(case)
    tensors = {argument.path: array for argument, array in zip(case.inputs, inputs, strict=True)}
    offsets = {argument.path: argument.spec.offset for argument in case.inputs}
    path = kept_before(folder, case)
    write_archive(path, Archive(tensors=tensors, offsets=offsets, facts=_facts(case)))
    if case.expects_error is not None:
        return
    announce(Phase.REFERENCE)
    expected, _ = expected_outputs([case], inputs, known, driver)
    tensors |= {f"output{index}.expected": _dense(each.value) for index, each in enumerate(expected)}
    write_archive(path, Archive(tensors=tensors, offsets=offsets, facts=_facts(case)))


def _facts(case: TestCase) -> dict[str, Any]:
    return {"id": case.id, "key": case.key, "case": case_to_wire(case)}


@contextmanager
def _outputs_kept(driver: BackendDriver, folder: Path) -> Iterator[None]:
    """While inside, ``driver`` writes down what it hands over; the object is changed, never its class."""
    run = driver.run
    run_into = driver.run_into if isinstance(driver, WritesOutputs) else None
    names = ("run",) if run_into is None else ("run", "run_into")

    def run_and_keep(case: TestCase, inputs: Sequence[Any]) -> Any:
        returned = run(case, inputs)
        _keep_actual(case, returned, folder)
        return returned

    def run_into_and_keep(case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        assert run_into is not None
        run_into(case, inputs, outputs)
        _keep_actual(case, list(outputs), folder)

    before = {name: vars(driver)[name] for name in names if name in vars(driver)}
    vars(driver)["run"] = run_and_keep
    if run_into is not None:
        vars(driver)["run_into"] = run_into_and_keep
    try:
        yield
    finally:
        for name in names:
            vars(driver).pop(name, None)
        vars(driver).update(before)


def _keep_actual(case: TestCase, returned: Any, folder: Path) -> None:
    """Nothing is kept of what is no list of arrays; the verdict says what is wrong with it."""
    try:
        outputs = in_order(case, returned)
    except Fault:
        return
    tensors = {f"output{index}.actual": _dense(each) for index, each in enumerate(outputs)}
    write_archive(kept_actual(folder, case), Archive(tensors=tensors))


def _dense(output: Any) -> np.ndarray[Any, Any]:
    """Strides of outputs are nobody's statement: that of a reference's array is the order that NumPy worked in."""
    return np.array(output, order="C")
