"""Optional abilities of drivers: one small protocol each, and the types of their arguments and results.

Here are methods whose presence alone changes what optest does; the others have defaults in ``BackendDriver``. A driver
has an ability if its class defines the method; test it with ``isinstance``. Here are the abilities for running a case;
``worker_abilities`` has those for worker processes, ``command_abilities`` those for commands and reports.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from optest.spec import Reason, TensorSpec, TestCase


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A case prepared for repeated calls, of which a benchmark times nothing else.

    ``call`` computes the outputs again from inputs that are in the backend's memory. ``synchronize`` returns when the
    device is idle. ``outputs`` calls once more and returns the outputs, as ``run`` does, so that they can be compared.
    ``what`` describes the call if the backend's name would mislead.
    """

    call: Callable[[], object]
    outputs: Callable[[], Sequence[Any] | Mapping[str, Any]]
    synchronize: Callable[[], object] = lambda: None
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraOutput:
    """Additional outputs for the same case, from the same call under other conditions; compared by the same rule.

    ``outputs`` are by name or in order, with other bits than those of ``run``. ``how`` is the difference in the
    conditions ("with 2 threads"). ``reason`` is the reason of a failure if only these outputs leave the tolerance; None
    keeps the comparison's reason. ``inputs`` are those with other values than the case's, by name: the reference is run
    again on them, and nothing is compared if it rejects them. ``premise`` is called with the comparison of the first
    outputs if these leave the tolerance: it returns why that is inconclusive, or "".
    """

    outputs: Any
    how: str
    reason: Reason | None = None
    inputs: Mapping[str, Any] | None = None
    premise: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptInput:
    """One input of a case in a generated script.

    ``name`` is its variable (``input0``). ``source`` is an expression for a NumPy array: the tensor if it is dense,
    else its one-dimensional storage; dtypes that NumPy lacks are unsigned integers with the same bits. ``spec`` has the
    layout, ``array`` the values.
    """

    name: str
    source: str
    spec: TensorSpec
    array: Any

    @property
    def is_numpys(self) -> bool:
        """Return whether NumPy has the dtype; others need ml_dtypes for :attr:`array_source`."""
        return bool(self.array.dtype.isbuiltin == 1)

    @property
    def array_source(self) -> str:
        """Expression for the array as ``run`` receives it, in its dtype and strides."""
        text = self.source if self.is_numpys else f"{self.source}.view(ml_dtypes.{self.spec.dtype.name})"
        if self.spec.is_dense:
            return text
        strides = tuple(stride * self.array.itemsize for stride in self.spec.strides or ())
        start = f"[{self.spec.offset}:]" if self.spec.offset else ""
        return f"np.lib.stride_tricks.as_strided({text}{start}, {self.spec.shape}, {strides})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Imports, lines that compute the outputs, and an expression for each output.

    An output expression can be indexed; its elements convert by ``float`` or ``int``. ``needs`` are required packages;
    ``arrays`` are saved with the inputs, as ``saved["name"]``. ``np``, ``Path`` and, if a line uses it, ``ml_dtypes``
    are imported by :mod:`optest.api.scripts`, which writes the code before and after.
    """

    imports: Sequence[str] = ()
    lines: Sequence[str]
    outputs: Sequence[str]
    needs: Sequence[str] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict)


class ProgramNode(NamedTuple):
    """An operation of a captured program with the names of its inputs and outputs; "" for one that is left out."""

    operation: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: str = ""
    has_effects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A call captured before it runs; ``is_optimized`` if nodes that no output needs must be gone."""

    nodes: Sequence[ProgramNode]
    inputs: Mapping[str, TensorSpec]
    outputs: Sequence[tuple[str, TensorSpec]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    is_optimized: bool = False


class Ability(type):
    """Metaclass: ``isinstance(x, C)`` tests whether x has the one member that C declares, like a runtime protocol."""

    # A protocol of `typing` walks the whole class at each test, which takes some 10 µs; a case tests six abilities.

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        declared = (*body, *body.get("__annotations__", ()))
        (cls.member,) = (each for each in declared if not each.startswith("_"))

    def __instancecheck__(cls, instance: object) -> bool:
        return hasattr(instance, cls.member)


class WritesOutputs(metaclass=Ability):
    """Writes into buffers that optest owns; they are poisoned before the call."""

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None: ...


class InfersShapes(metaclass=Ability):
    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """Return dtype and shape of each output uncomputed; raise Fault UNSUPPORTED if they depend on values."""


class CapturesPrograms(metaclass=Ability):
    def captured_program(self, case: TestCase, values: Callable[[], Sequence[Any]]) -> Program:
        """Return the program of ``case`` without running it; raise ``Fault`` UNSUPPORTED if it cannot be captured.

        A capture that needs arrays gets the inputs by ``values``; it is repeated with others.
        """


class Blames(metaclass=Ability):
    def blame(self, case: TestCase, inputs: Sequence[Any]) -> None:
        """Call the case again to find the cause of a wrong output; raise it as Fault, which becomes the verdict."""


class PreparesCalls(metaclass=Ability):
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> AbstractContextManager[PreparedCall] | None:
        """Return the case as a call that can be timed, for ``--bench``; None if it cannot.

        Work outside of the call (copies to a device, descriptors, workspaces) is done on entering and undone on
        leaving.
        """


class WritesScripts(metaclass=Ability):
    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:
        """Return Python lines that replace ``run`` in a script without optest, or the reason why that is not possible.

        ``may_run`` is False for a case that crashed or hung: then nothing of it may be run here."""


def writes_outputs(driver: Any, case: TestCase) -> bool:
    """Return whether ``run_into`` is called for the case: if the driver has it and its ``runs_into(case)`` is true."""
    return hasattr(driver, "run_into") and bool(driver.runs_into(case))
