"""What a driver may be able to do beside running a case: one small protocol for each ability, and the nouns they take.

A driver has an ability if its class defines the method; it inherits nothing for it. Who asks uses ``isinstance``, or
one of the functions at the end where a driver without the ability has a plain answer, too.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from optest.backends.capabilities import Capabilities, capability_of
from optest.spec import OperatorDescriptor, Reason, Sample, TensorSpec, TestCase, Verdict

__all__ = [
    "Blames",
    "CapturesPrograms",
    "ChecksConfig",
    "ChecksReadiness",
    "ComparesVariants",
    "Configurable",
    "CountsOperators",
    "DeviceRequest",
    "EndsRuns",
    "ExplainsItself",
    "FurtherAnswer",
    "GivesFurtherAnswers",
    "GuardsMemory",
    "HasVariants",
    "InfersShapes",
    "JudgesItself",
    "KeepsDeadline",
    "KeepsGolden",
    "KnowsCommand",
    "KnowsDtypes",
    "KnowsExpectations",
    "KnowsExpectationsOfSamples",
    "LacksOperators",
    "MeasuresCompilation",
    "NeedsDevices",
    "NeedsEnvironment",
    "PreparedCall",
    "PreparesCalls",
    "PreparesPrograms",
    "Program",
    "ProgramNode",
    "ReadsFiles",
    "RunsInForks",
    "RunsPrograms",
    "Script",
    "ScriptInput",
    "SelectsSamples",
    "StatesCapabilities",
    "StatesCaseOptions",
    "TakesOptions",
    "WritesOutputs",
    "WritesScripts",
    "case_options_of",
    "compared_variants",
    "configure",
    "guards_memory",
    "keeps_deadline",
    "lack_of",
    "options_of",
    "outside_capabilities",
    "runs_programs",
]


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


if TYPE_CHECKING:
    _ProtocolType = ABCMeta
else:
    _ProtocolType = type(Protocol)


class _Ability(_ProtocolType):
    """``isinstance`` by the one member that each protocol here has.

    That of ``typing`` walks the whole class each time, which costs some 10 µs, and a case is asked about six abilities.
    """

    def __init__(self, name: str, bases: tuple[type, ...], body: dict[str, Any], **more: Any) -> None:
        super().__init__(name, bases, body, **more)
        declared = (*body, *body.get("__annotations__", ()))
        (self.member,) = (each for each in declared if not each.startswith("_"))

    def __instancecheck__(self, instance: object) -> bool:
        return hasattr(instance, self.member)


# While a case runs.


@runtime_checkable
class WritesOutputs(Protocol, metaclass=_Ability):
    """Writes into buffers that optest owns; they are poisoned before the call."""

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None: ...


@runtime_checkable
class GuardsMemory(Protocol, metaclass=_Ability):
    """Where true, foreign code gets copies that this driver makes and watches, and what it returns is nobody else's: a
    driver of optest's own, which is handed the inputs themselves and leaves them as they are."""

    guards_memory: bool


@runtime_checkable
class KeepsGolden(Protocol, metaclass=_Ability):
    def golden(self, case: TestCase) -> Sequence[Any] | None:
        """Expected outputs that this driver keeps for exactly this case, in order; None to ask the reference.

        Asked before the generator's own and the reference's. Raise :class:`Fault` for ones that are stale or broken.
        """


@runtime_checkable
class InfersShapes(Protocol, metaclass=_Ability):
    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """Dtype and shape of each output of ``case``, in order, told without computing one.

        Raises:
            Fault: UNSUPPORTED where they depend on values; as ``run`` does. Any other exception refuses the call.
        """


@runtime_checkable
class CapturesPrograms(Protocol, metaclass=_Ability):
    def captured_program(self, case: TestCase, values: Callable[[], Sequence[Any]]) -> Program:
        """The program of ``case``; nothing is computed. A capture that needs arrays gets inputs by ``values``, and is
        made of other ones, too. Raise ``Fault``: UNSUPPORTED where nothing is captured."""


@runtime_checkable
class MeasuresCompilation(Protocol, metaclass=_Ability):
    def compile_s(self) -> float | None:
        """Seconds that the last run spent in a compiler, which are no part of its run time; None if there is none."""


@runtime_checkable
class GivesFurtherAnswers(Protocol, metaclass=_Ability):
    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        """Answers with other bits that this driver got for ``case`` while it last ran it; each is judged too."""


@runtime_checkable
class JudgesItself(Protocol, metaclass=_Ability):
    def own_verdict(self, case: TestCase) -> Verdict:
        """What a test that compares by itself says of ``case``, which it has just run. It counts where optest expects
        nothing; a pass rests on ``Evidence.EXTERNAL_REPORT``."""


@runtime_checkable
class Blames(Protocol, metaclass=_Ability):
    def blame(self, case: TestCase, inputs: Sequence[Any]) -> None:
        """Call the case once more under circumstances that tell what the wrong answer is due to.

        Raises:
            Fault: for what the wrong answer is due to; the verdict is this, then.
        """


@runtime_checkable
class PreparesCalls(Protocol, metaclass=_Ability):
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> AbstractContextManager[PreparedCall] | None:
        """The case as a call that can be timed by itself, for ``--bench``; None where there is none.

        Whatever belongs to no call (copies to a device, descriptors, workspaces) is done on entering and undone on
        leaving.
        """


@runtime_checkable
class WritesScripts(Protocol, metaclass=_Ability):
    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:
        """Python lines that do without optest what ``run`` does, or why there are none, in words.

        ``may_run`` is False for a case that crashed or hung: nothing of it may be tried here then.
        """


# What is configured, and what cases say of it.


@runtime_checkable
class TakesOptions(Protocol, metaclass=_Ability):
    """``options`` are those of the command line that ``configure`` takes; any other one is refused for this driver."""

    options: tuple[str, ...]


@runtime_checkable
class Configurable(Protocol, metaclass=_Ability):
    def configure(self, options: Mapping[str, Any]) -> None:
        """Take options of the command line (``torch_device``, ``threads``) before the first case."""


@runtime_checkable
class HasVariants(Protocol, metaclass=_Ability):
    """Ways to compute the same operators, such as optimisation levels: the first is the baseline, the last the default.
    ``case.backend.variant`` is the one that is asked; a check asks the baseline, too (:class:`ComparesVariants`)."""

    variants: tuple[str, ...]


@runtime_checkable
class ComparesVariants(Protocol, metaclass=_Ability):
    """Where False, a check asks no baseline, and no variant is asked by itself; a driver that says nothing compares."""

    compares_variants: bool


@runtime_checkable
class RunsPrograms(Protocol, metaclass=_Ability):
    """Where true, a check has to name the programs of operators (``--config``)."""

    runs_programs: bool


@runtime_checkable
class StatesCaseOptions(Protocol, metaclass=_Ability):
    def case_options(self) -> Mapping[str, Any]:
        """What the options that ``configure`` took mean as this driver's ``backend_config``: every case holds them, and
        whoever runs one of its plans needs no option."""


@runtime_checkable
class ChecksConfig(Protocol, metaclass=_Ability):
    def problems(self, case: TestCase) -> Sequence[str]:
        """What is wrong with the case's ``backend_config`` for this driver, found when the plan is read."""


@runtime_checkable
class KnowsDtypes(Protocol, metaclass=_Ability):
    def dtypes_of(self, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Dtypes by tensor name that a case's options for this driver state, for cases that state no dtypes."""


@runtime_checkable
class KeepsDeadline(Protocol, metaclass=_Ability):
    """Where true, the driver ends what it started when ``case.timeout_s`` is over, and says so itself."""

    keeps_deadline: bool


@runtime_checkable
class RunsInForks(Protocol, metaclass=_Ability):
    """A driver that is loaded and configured has no thread and no device yet: forks of a worker can run its cases, and
    one that dies is replaced in a tenth of the time."""

    def before_fork(self, case: TestCase) -> None:
        """Do once what every fork would do again for such a case, and what foreign code has no part in.

        Raises:
            OptestError, Fault: as ``run`` does, which nobody sees here.
        """


@runtime_checkable
class NeedsEnvironment(Protocol, metaclass=_Ability):
    def environment(self, cases: Sequence[TestCase]) -> Mapping[str, str]:
        """Variables that a worker needs from its start to run ``cases``; what the user's environment says wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """What a case needs of the devices that ``--device`` names.

    ``count`` devices of ``platform``. A process serves one ``runtime`` alone where the platform says so. Cases of level
    2 with the same ``runtime`` share one worker on each device; one of level 3 has a process and its devices for itself
    while it runs. Cases of one ``file`` stay on one worker unless devices would idle.
    """

    platform: str
    runtime: str
    count: int = 1
    level: int = 2
    file: str = ""


@runtime_checkable
class NeedsDevices(Protocol, metaclass=_Ability):
    def devices_of(self, case: TestCase) -> DeviceRequest | None:
        """What ``case`` needs of devices; None if it needs none. A worker is configured with ``device_ids``, the ids
        that it may use."""


@runtime_checkable
class PreparesPrograms(Protocol, metaclass=_Ability):
    def prepare(self, case: TestCase) -> None:
        """Build what ``case`` runs, before a device is held for it: called in the process that starts the workers, by
        several threads at once; a cache on disk hands it to them.

        Raises:
            Fault: COMPILE, BAD_CASE or UNSUPPORTED: the verdict of the case, which then needs no device.
        """


# What `optest check` and reports ask.


@runtime_checkable
class ChecksReadiness(Protocol, metaclass=_Ability):
    def ready_for_check(self) -> str | None:
        """Why nothing can be checked yet, in words for whoever typed the command: an option is missing. Else None."""


@runtime_checkable
class LacksOperators(Protocol, metaclass=_Ability):
    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        """Why a check asks this driver for no case of an operator (``not in mapping infiniop``), None if it asks."""


@runtime_checkable
class StatesCapabilities(Protocol, metaclass=_Ability):
    """What it can do, by operator. Of other operators, and outside of what is stated, nothing is asked; a case inside
    that is answered by UNSUPPORTED is an error."""

    capabilities: Capabilities


@runtime_checkable
class SelectsSamples(Protocol, metaclass=_Ability):
    def samples(self, own: Sequence[tuple[Sample, TestCase]]) -> Sequence[Sample]:
        """What a check asks of an operator: ``own`` are the samples of its case sets and the cases that they make, to
        which a driver may add what only drivers of its kind can be asked."""


@runtime_checkable
class KnowsCommand(Protocol, metaclass=_Ability):
    def command_line(self, case: TestCase) -> Sequence[str]:
        """The words behind ``optest`` that run ``case`` again, where flags of its operator are not the way to it."""


@runtime_checkable
class KnowsExpectations(Protocol, metaclass=_Ability):
    def expectations(self) -> str | None:
        """Path of a file of differences that `optest check` expects of this driver on its device; None for none."""


@runtime_checkable
class KnowsExpectationsOfSamples(Protocol, metaclass=_Ability):
    def expectations_of_samples(self) -> str | None:
        """The same for `optest run --source`, whose cases are calls of a framework."""


@runtime_checkable
class CountsOperators(Protocol, metaclass=_Ability):
    def declares(self, operators: Sequence[str]) -> tuple[int, Sequence[str]] | None:
        """How many operators the backend has in all, and which of these are not among them; None if nobody knows."""


@runtime_checkable
class ReadsFiles(Protocol, metaclass=_Ability):
    def files_of(self, cases: Sequence[TestCase]) -> Sequence[Path]:
        """Files on which results depend and which no case names: a run is resumed only if none of them has changed."""


@runtime_checkable
class EndsRuns(Protocol, metaclass=_Ability):
    def end_run(self, folder: Path) -> None:
        """Put away what the cases of a run left behind; ``folder`` is that of the run. Called once, when it is over, in
        the process that started its workers."""


@runtime_checkable
class ExplainsItself(Protocol, metaclass=_Ability):
    def doctor(self) -> Sequence[str]:
        """Facts for ``optest doctor``: devices, versions. Raise ``Unavailable`` if it cannot work here."""


def guards_memory(driver: object) -> bool:
    return isinstance(driver, GuardsMemory) and driver.guards_memory


def keeps_deadline(driver: object) -> bool:
    return isinstance(driver, KeepsDeadline) and driver.keeps_deadline


def runs_programs(driver: object) -> bool:
    return isinstance(driver, RunsPrograms) and driver.runs_programs


def compared_variants(driver: object) -> tuple[str, ...]:
    """The variants of a driver that are held against each other, the baseline first; () of one that has none."""
    if not isinstance(driver, HasVariants) or (isinstance(driver, ComparesVariants) and not driver.compares_variants):
        return ()
    return driver.variants


def options_of(driver: object) -> tuple[str, ...]:
    """The options of the command line that a driver takes."""
    return driver.options if isinstance(driver, TakesOptions) else ()


def lack_of(driver: object, descriptor: OperatorDescriptor) -> str | None:
    """Why a check asks the driver for no case of an operator, None if it asks."""
    if isinstance(driver, LacksOperators):
        return driver.lacks(descriptor)
    is_stated = not isinstance(driver, StatesCapabilities) or capability_of(driver.capabilities, descriptor)
    return None if is_stated else "not among the stated capabilities"


def outside_capabilities(driver: object, case: TestCase) -> str | None:
    """Why the case is outside of what the driver states, None if it is inside or nothing is stated."""
    if not isinstance(driver, StatesCapabilities):
        return None
    found = capability_of(driver.capabilities, case.descriptor)
    return "the operator is not among the stated capabilities" if found is None else found.lacks(case)


def configure(driver: object, options: Mapping[str, Any]) -> None:
    """Hand a driver its options, if it is configured at all."""
    if isinstance(driver, Configurable):
        driver.configure(options)


def case_options_of(driver: object) -> Mapping[str, Any]:
    """The driver's options that every one of its cases holds."""
    return driver.case_options() if isinstance(driver, StatesCaseOptions) else {}
