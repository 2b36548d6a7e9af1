"""What a driver may be able to do beside running a case: one small protocol for each ability, and the nouns they take.

A driver has an ability if its class defines the method; it inherits nothing for it. Who asks uses ``isinstance``, or a
function where a driver without the ability has a plain answer, too. Here is what is asked while a
case runs; ``worker_abilities`` has what is asked for its process, ``command_abilities`` what commands and reports ask.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from optest.spec import Reason, TensorSpec, TestCase, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A case made ready to be called again and again: what a benchmark times, and nothing around it.

    ``call`` computes the outputs once more from inputs that are where the backend wants them. ``synchronize`` returns
    when the device has done all that was called. ``outputs`` calls once more and returns the outputs, as ``run`` does,
    so that what was timed can be judged. ``what`` says what is called, where the backend's name alone would mislead.
    """

    call: Callable[[], object]
    outputs: Callable[[], Sequence[Any] | Mapping[str, Any]]
    synchronize: Callable[[], object] = lambda: None
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherAnswer:
    """Another answer to the same case: the same call under other circumstances, judged by the same rule.

    ``outputs`` by name or in order, with other bits than those that ``run`` returned. ``how`` says what was different
    ("with 2 threads"). ``reason`` is what it is called when this answer leaves the rule and the first one does not;
    None keeps the reason of the comparison. ``inputs`` are those that had other values than the case's, by name; what
    is expected is asked of the reference once more, and nothing where it refuses. ``premise`` is asked where the answer
    leaves the rule, with the first one's comparison: why that shows nothing of the backend, "" where it does.
    """

    outputs: Any
    how: str
    reason: Reason | None = None
    inputs: Mapping[str, Any] | None = None
    premise: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptInput:
    """One input of the case, as a script gets at it.

    ``name`` is the variable to bind (``input0``). ``source`` is an expression for a NumPy array: the tensor itself if
    it is dense, else its one-dimensional storage; element types that NumPy lacks come as unsigned integers of their
    bits. ``spec`` has the layout, ``array`` the values.
    """

    name: str
    source: str
    spec: TensorSpec
    array: Any

    @property
    def is_numpys(self) -> bool:
        """Whether NumPy has the element type; others need ml_dtypes for :attr:`array_source`."""
        return bool(self.array.dtype.isbuiltin == 1)

    @property
    def array_source(self) -> str:
        """An expression for the array as ``run`` gets it, in its element type and strides."""
        text = self.source if self.is_numpys else f"{self.source}.view(ml_dtypes.{self.spec.dtype.name})"
        if self.spec.is_dense:
            return text
        strides = tuple(stride * self.array.itemsize for stride in self.spec.strides or ())
        start = f"[{self.spec.offset}:]" if self.spec.offset else ""
        return f"np.lib.stride_tricks.as_strided({text}{start}, {self.spec.shape}, {strides})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What to import, the lines that end with the outputs, and an expression for each output.

    An output expression is anything that takes an index and gives what ``float`` or ``int`` takes. ``needs`` are the
    packages beside the standard library; ``arrays`` are saved with the inputs, for ``saved["name"]`` in the lines.
    ``numpy`` and ``Path`` are imported as ``np`` and ``Path`` already, ``ml_dtypes`` where a line uses it. The frame
    around it (saved tensors, what is compared with what) is put there by :mod:`optest.api.scripts`.
    """

    imports: Sequence[str] = ()
    lines: Sequence[str]
    outputs: Sequence[str]
    needs: Sequence[str] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict)


class ProgramNode(NamedTuple):
    """An operation of a captured program with the names of the values that it takes and makes, "" for one left out."""

    operation: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: str = ""
    has_effects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A call as it is captured before it runs; ``is_optimized`` if nodes that no output needs should be gone."""

    nodes: Sequence[ProgramNode]
    inputs: Mapping[str, TensorSpec]
    outputs: Sequence[tuple[str, TensorSpec]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    is_optimized: bool = False


class Ability(type):
    """Whoever has the one member that such a class declares is an instance of it, as of a protocol of ``typing``.

    That one walks the whole class each time, which costs some 10 µs, and a case is asked about six abilities.
    """

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        declared = (*body, *body.get("__annotations__", ()))
        (cls.member,) = (each for each in declared if not each.startswith("_"))

    def __instancecheck__(cls, instance: object) -> bool:
        return hasattr(instance, cls.member)


class WritesOutputs(metaclass=Ability):
    """Writes into buffers that optest owns; they are poisoned before the call."""

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None: ...


class KeepsGolden(metaclass=Ability):
    def golden(self, case: TestCase) -> Sequence[Any] | None:
        """Expected outputs that this driver keeps for exactly this case, in order; None to ask the reference.

        Asked before the generator's own and the reference's. Raise :class:`Fault` for ones that are stale or broken.
        """


class InfersShapes(metaclass=Ability):
    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """Dtype and shape of each output of ``case``, in order, told without computing one.

        Raises:
            Fault: UNSUPPORTED where they depend on values; as ``run`` does. Any other exception refuses the call.
        """


class CapturesPrograms(metaclass=Ability):
    def captured_program(self, case: TestCase, values: Callable[[], Sequence[Any]]) -> Program:
        """The program of ``case``; nothing is computed. A capture that needs arrays gets inputs by ``values``, and is
        made of other ones, too. Raise ``Fault``: UNSUPPORTED where nothing is captured."""


class MeasuresCompilation(metaclass=Ability):
    def compile_s(self) -> float | None:
        """Seconds that the last run spent in a compiler, which are no part of its run time; None if there is none."""


class GivesFurtherAnswers(metaclass=Ability):
    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        """Answers with other bits that this driver got for ``case`` while it last ran it; each is judged too."""


class JudgesItself(metaclass=Ability):
    def own_verdict(self, case: TestCase) -> Verdict:
        """What a test that compares by itself says of ``case``, which it has just run. It counts where optest expects
        nothing; a pass rests on ``Evidence.EXTERNAL_REPORT``."""


class Blames(metaclass=Ability):
    def blame(self, case: TestCase, inputs: Sequence[Any]) -> None:
        """Call the case once more under circumstances that tell what the wrong answer is due to.

        Raises:
            Fault: for what the wrong answer is due to; the verdict is this, then.
        """


class PreparesCalls(metaclass=Ability):
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> AbstractContextManager[PreparedCall] | None:
        """The case as a call that can be timed by itself, for ``--bench``; None where there is none.

        Whatever belongs to no call (copies to a device, descriptors, workspaces) is done on entering and undone on
        leaving.
        """


class WritesScripts(metaclass=Ability):
    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:
        """Python lines that do without optest what ``run`` does, or why there are none, in words.

        ``may_run`` is False for a case that crashed or hung: nothing of it may be tried here then.
        """


def guards_memory(driver: object) -> bool:
    """Whether a driver says ``guards_memory = True``: foreign code gets copies that it makes and watches, and what it
    returns is nobody else's. It is optest's own, is handed the inputs themselves and leaves them as they are."""
    return bool(getattr(driver, "guards_memory", False))


def writes_outputs(driver: object, case: TestCase) -> bool:
    """Whether ``run_into`` is called for the case: if there is one, unless the driver's ``runs_into`` says no."""
    return isinstance(driver, WritesOutputs) and bool(getattr(driver, "runs_into", lambda _: True)(case))


def mutated_inputs(driver: object, case: TestCase) -> Collection[str]:
    """The names of inputs that a call may change: the operator's, and those that the driver's ``writes_inputs`` names,
    in which it makes the outputs."""
    own: Collection[str] = getattr(driver, "writes_inputs", lambda _: ())(case)
    return {*case.descriptor.mutates, *own} if own else case.descriptor.mutates


def reads_inputs(driver: object) -> bool:
    """Whether kernels may read beside the arrays that ``run`` gets: they are called once more with other numbers there.
    A driver that copies its inputs elsewhere says ``reads_inputs = False``."""
    return bool(getattr(driver, "reads_inputs", True))


def margin_bytes(driver: object) -> int:
    """How much memory of its own is on each side of an input, and watched on each side of an output: ``margin_bytes``,
    a page if the driver says nothing."""
    return int(getattr(driver, "margin_bytes", 1 << 12))
