"""Driver of scenes: it runs their programs on arguments in guarded memory, and checks the accesses."""

from __future__ import annotations

import atexit
import copy
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver
from optest.backends.worker_abilities import DeviceRequest
from optest.errors import OptestError, Unavailable
from optest.generators.resolve import seed_global_state
from optest.memory.buffer_sets import BufferPlacement, BufferSet, Filling
from optest.memory.buffers import require_written
from optest.memory.poisons import Poison
from optest.numerics import Array, bits, dtype_of
from optest.registry import load_file, load_object
from optest.scenes.artifacts import Recorder, collect_outputs, folder_of
from optest.scenes.cases import PREFIX, case_of, digest_of, scene_of
from optest.scenes.declaration import ArgDirection, SceneTestCase, TaskArgs, tensors_of
from optest.scenes.runtimes import RUNTIMES, Recording, RunOptions, SceneWorker, absolute_sources
from optest.scenes.runtimes.callables import directions_in
from optest.settings import variables_set
from optest.spec import (
    Check,
    CheckState,
    Fault,
    NamedOutput,
    Reason,
    ReferenceNote,
    Rule,
    RuleClass,
    TensorSpec,
    TestCase,
)

_OPTIONS = ("device", "device_ids", "enable_profiling", "dump_tensor", "build", "log_level")
_CHECKS = (
    Check(name="inputs unchanged", state=CheckState.DONE),
    Check(name="guard zones", state=CheckState.DONE, detail="64 KiB on each side of every tensor"),
)
_WRITTEN = Check(
    name="outputs written", state=CheckState.DONE, detail="a second run checks elements that kept their initial value"
)
# A tile or a row that is written behind a tensor's end falls into it.
_GUARD_BYTES = 1 << 16
_PATHS = ("_DIR", "_PATH")
_SOURCES = frozenset([".py", ".c", ".cc", ".cpp", ".cu", ".cl", ".h", ".hh", ".hpp", ".cuh", ".inc"])


class SceneArguments:
    """Generator of a scene's arguments and golden outputs."""

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[Any] | None]:  # noqa: ARG002
        """Return no inputs, since the driver has the arguments, and the golden outputs; raise Fault if one is invalid.

        A case declares its tensors before they are known, so they cannot be its inputs.
        """
        return (), (_golden(case, arguments_of(case)) if case.attributes["golden"] else None)


class Arguments(NamedTuple):
    """Arguments of a case as the scene built them from ``params``, and the same with dense NumPy arrays."""

    params: Mapping[str, Any]
    built: TaskArgs
    args: TaskArgs
    directions: Mapping[str, ArgDirection]


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A case that equals every other case with its key."""

    key: str
    case: TestCase = field(compare=False)


def arguments_of(case: TestCase) -> Arguments:
    """Return the arguments of a case, which depend only on its key; the generator and the driver share those of the
    latest case.

    Raises:
        Fault: BAD_CASE for a result that is no TaskArgs, tensors that share memory, and a signature that does not fit.
    """
    return _build_arguments(_Keyed(case.key, case))


@lru_cache(maxsize=1)
def _build_arguments(keyed: _Keyed) -> Arguments:
    scene, params = scene_of(keyed.case), copy.deepcopy(case_of(keyed.case).params)
    seed_global_state(keyed.case)
    built = _method(scene, "generate_args", "generate_inputs")(params)
    if not isinstance(built, TaskArgs):
        raise Fault(Reason.BAD_CASE, f"generate_args returned {type(built).__name__}, expected TaskArgs")
    arrays = _arrays(built)
    for one, two in itertools.combinations(arrays, 2):  # a runtime gets separate buffers, so writes would not alias
        if np.may_share_memory(arrays[one], arrays[two]):
            raise Fault(Reason.BAD_CASE, f"tensors {one} and {two} share memory; copy one of them")
    args = built.clone({name: np.array(array, order="C") for name, array in arrays.items()})
    return Arguments(params, built, args, directions_of(scene, args))


def _method(scene: SceneTestCase, name: str, name_in_file: str) -> Callable[..., Any]:
    """Return a method of the scene, or the function of the file ``GOLDEN`` that replaces it."""
    if not scene.GOLDEN:
        return getattr(scene, name)  # type: ignore[no-any-return]
    file = scene._scene_file.parent / scene.GOLDEN
    return getattr(load_file(file, name=f"optest_golden_{file.stem}"), name_in_file)  # type: ignore[no-any-return]


def _golden(case: TestCase, arguments: Arguments) -> list[NamedOutput | ReferenceNote]:
    """Return the golden outputs, which ``compute_golden`` writes into a copy of the arguments, and a note on constants.

    Raises:
        Fault: REFERENCE_FAILED if it raises, changes a shape or dtype, or leaves an OUT or all outputs unchanged.
    """
    scene, golden, directions = scene_of(case), arguments.built.clone(), arguments.directions
    try:
        _method(scene, "compute_golden", "compute_golden")(golden, arguments.params)
    except Exception as error:
        raise Fault(Reason.REFERENCE_FAILED, f"compute_golden raised {type(error).__name__}: {error}") from error
    expected = _arrays(golden)
    outputs, unchanged, constant = [], list[str](), list[str]()
    for name in [name for name, direction in directions.items() if direction is not ArgDirection.IN]:
        initial, value = getattr(arguments.args, name), expected[name]
        if (value.shape, value.dtype) != (initial.shape, initial.dtype):
            actual, generated = (f"{array.dtype}{list(array.shape)}" for array in (value, initial))
            raise Fault(Reason.REFERENCE_FAILED, f"compute_golden set {name} to {actual}, expected {generated}")
        if value.size and np.all((initial == value) | ((initial != initial) & (value != value))):  # any NaN is equal
            unchanged.append(name)
        elif value.size > 1 and np.all((value == value.flat[0]) | (value != value)):
            constant.append(name)
        outputs.append(NamedOutput(name, value, rule=_default_rule(case, value)))
    never_written = [name for name in unchanged if directions[name] is ArgDirection.OUT]
    if never_written or (unchanged and len(unchanged) == sum(bool(output.value.size) for output in outputs)):
        raise Fault(
            Reason.REFERENCE_FAILED,
            f"compute_golden leaves {', '.join(never_written or unchanged)} as generate_args returns it, so that a "
            "kernel that does nothing would pass; use other initial values in generate_args",
        )
    detail = (
        f"elements at wrong positions are not detected: every expected element is the same in {', '.join(constant)}"
    )
    return [*outputs, ReferenceNote(detail)] if constant else [*outputs]


def _default_rule(case: TestCase, value: Array) -> Rule | None:
    """Return the rule for an output: exact for integers, else 1e-5 (16 bits: 1e-3) as in simpler; None if the case has
    a tolerance."""
    kind = dtype_of(value.dtype)
    if not kind.is_inexact:
        return Rule(kind=RuleClass.EXACT, fixed=True)
    tolerances = [entry.tolerance for entry in case.tolerances if entry.output is None]
    # A rule next to a tolerance would replace it silently if zeros pass by the rule.
    if any(tolerance.rtol is not None or tolerance.atol is not None for tolerance in tolerances):
        return None
    allowed = 1e-3 if kind.bits <= 16 else 1e-5
    return Rule(kind=RuleClass.CLOSE, source="optest.scenes", close=(allowed, allowed))


def _arrays(args: TaskArgs) -> dict[str, Array]:
    """Return the tensors as NumPy arrays, sharing memory if possible; raise Fault BAD_CASE for another type."""
    arrays: dict[str, Array] = {}
    torch = sys.modules.get("torch")
    for name, value in tensors_of(args).items():
        is_of_torch = torch is not None and isinstance(value, torch.Tensor)
        arrays[name] = load_object("optest.torch.tensors:as_array")(value) if is_of_torch else value
        if not isinstance(arrays[name], np.ndarray):
            raise Fault(Reason.BAD_CASE, f"tensor {name} is {type(value).__name__}, expected an array or a tensor")
        dtype_of(arrays[name].dtype)
    return arrays


def directions_of(scene: SceneTestCase, args: TaskArgs) -> dict[str, ArgDirection]:
    """Return the direction of each tensor by the ``signature`` in ``CALLABLE``; without one all are INOUT.

    Raises:
        Fault: BAD_CASE if the signature does not fit the arguments, or has no output.
    """
    names = args.tensor_names()
    orchestration = scene.CALLABLE.get("orchestration")
    inner = orchestration if isinstance(orchestration, Mapping) else {}
    signature = scene.CALLABLE.get("signature", inner.get("signature"))
    if signature is None:
        return dict.fromkeys(names, ArgDirection.INOUT)
    kinds = directions_in(signature)
    if not len(names) <= len(kinds) <= len(names) + len(args.scalar_names()):
        text = f"the signature has {len(kinds)} entries, but generate_args returns {len(names)} tensors"
        raise Fault(Reason.BAD_CASE, text)
    directions = dict(zip(names, kinds, strict=False))
    if set(directions.values()) <= {ArgDirection.IN}:
        raise Fault(Reason.BAD_CASE, "the signature has no output, so that nothing would be compared")
    return directions


class SceneDriver(BackendDriver):
    """Runs scenes on the runtimes that they name; one worker is open for each runtime and set of devices."""

    name = "scene"
    kind = "scene"
    options = _OPTIONS
    guards_memory = True

    def __init__(self) -> None:
        self._options: Mapping[str, Any] = {}
        self._workers: dict[tuple[str, str, tuple[int, ...]], SceneWorker] = {}
        self._recorded: set[str] = set()
        atexit.register(self._close)

    def configure(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._recorded.clear()

    def problems(self, case: TestCase) -> Sequence[str]:
        if case.descriptor.name.startswith(PREFIX):
            return ()
        return (f"{case.descriptor.name} is not a scene; --source scene:FILE runs the scenes of a file",)

    def devices_of(self, case: TestCase) -> DeviceRequest | None:
        scene, attributes = scene_of(case), case.attributes
        return DeviceRequest(
            platform=attributes["platform"],
            runtime=scene._scene_runtime,
            count=case_of(case).device_count,
            level=scene._scene_level,
            file=attributes["file"],
        )

    def command_line(self, case: TestCase) -> Sequence[str]:
        file, platform, case_name = (case.attributes[name] for name in ("file", "platform", "case"))
        name = f"{case.descriptor.name.removeprefix(PREFIX)}::{case_name}"
        words = ["run", "--source", f"scene:{file}", "--platform", platform, "--case", name]
        more = {"--manual": "include" * ("manual" in case.tags), "--seed": str(case.seed or "")}
        return [*words, *(word for flag, value in more.items() if value for word in (flag, value))]

    def prepare(self, case: TestCase) -> None:
        with _unchanged_sources(case):
            self._program(case)

    def _program(self, case: TestCase) -> Any:
        """Return the compiled program of a case; raise Fault UNAVAILABLE or BAD_CASE if it cannot be compiled here."""
        try:
            scene: Any = type(scene_of(case))
            return _build_program(scene, case.attributes["platform"])
        except Unavailable as error:
            raise Fault(Reason.UNAVAILABLE, str(error)) from None
        except OptestError as error:
            raise Fault(Reason.BAD_CASE, str(error)) from None

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002 - see arguments_of
        with _unchanged_sources(case):
            return self._run(case)

    def _run(self, case: TestCase) -> Sequence[Any]:
        """Run the case and return its outputs; raise Fault if it wrote outside of them or left elements unwritten."""
        program, scene, (*_, args, directions) = self._program(case), scene_of(case), arguments_of(case)
        folder = folder_of(scene, case, self._ids(case))
        # Only the first repetition is profiled.
        profiles = bool(self._options.get("enable_profiling")) and case.id not in self._recorded
        self._recorded.add(case.id)
        recorder = Recorder(case, folder, profiles=profiles, dumps=bool(self._options.get("dump_tensor")))
        runtime, scene_folder = RUNTIMES.get(scene._scene_runtime)(), scene._scene_file.parent
        variables = {
            name: str(scene_folder / value) if name.endswith(_PATHS) else str(value)
            for name, value in scene.RUNTIME_ENV.items()
        }
        if runtime.log_variable and self._options.get("log_level"):
            variables[runtime.log_variable] = self._options["log_level"]
        if runtime.profile_variable and recorder.profiles:
            variables[runtime.profile_variable] = str(recorder.make_folder())
        roles = {
            f"{'input' if direction is ArgDirection.IN else 'output'}:{name}": name
            for name, direction in directions.items()
        }
        values = {role: getattr(args, name) for role, name in roles.items()}
        specs = ((role, TensorSpec(dtype=dtype_of(x.dtype), shape=x.shape)) for role, x in values.items())
        memory = BufferSet((BufferPlacement(guard_bytes=_GUARD_BYTES), tuple(specs), 0))

        def run_with(initial: Mapping[str, Array], recording: Recording) -> None:
            memory.fill(Filling(inputs=Poison.A5), initial)
            guarded = args.clone({name: memory.slots[role].buffer.array for role, name in roles.items()})
            options = RunOptions(config=case_of(case).config, level=scene._scene_level, recording=recording)
            with variables_set(variables):
                self._worker(case).run(program, guarded, options)

        run_with(values, recorder)
        recorder.write()
        outputs = memory.collect()
        # A kernel that leaves elements out would pass if the golden has their initial values: poison reveals them.
        kept = {
            name: bits(getattr(args, name)) == bits(array)
            for name, array in outputs.items()
            if directions[name] is ArgDirection.OUT and case.attributes["golden"]
        }
        if any(mask.any() for mask in kept.values()):
            run_with({role: values[role] for role, name in roles.items() if name not in kept}, Recording())
            untouched = memory.untouched()
            require_written({name: (outputs[name], mask & untouched[name]) for name, mask in kept.items()})
        return list(outputs.values())

    def _ids(self, case: TestCase) -> tuple[int, ...]:
        count = case_of(case).device_count
        return tuple(self._options.get("device_ids") or range(count))[:count]

    def _worker(self, case: TestCase) -> SceneWorker:
        runtime, platform, ids = scene_of(case)._scene_runtime, case.attributes["platform"], self._ids(case)
        key = (runtime, platform, ids)
        if key not in self._workers:
            opened = RUNTIMES.get(runtime)().open(platform, ids, rebuild=bool(self._options.get("build")))
            self._workers[key] = opened
        return self._workers[key]

    def files_of(self, cases: Sequence[TestCase]) -> Sequence[Path]:
        folders = {scene_of(case)._scene_file.parent for case in cases}
        return sorted({file for folder in folders for file in folder.rglob("*.*") if file.suffix in _SOURCES})

    def end_run(self, folder: Path) -> None:
        self._close()
        collect_outputs(folder)

    # For workers of this process; a worker process does it when it ends.
    def _close(self) -> None:
        while self._workers:
            self._workers.popitem()[1].close()

    def checks(self, case: TestCase) -> Sequence[Check]:
        runtime = scene_of(case)._scene_runtime
        why = f"runtime {runtime} copies the tensors: its kernels write to other memory"
        copies = RUNTIMES.get(runtime)().copies
        checks = [replace(x, state=CheckState.NOT_POSSIBLE, detail=why) if copies else x for x in _CHECKS]
        return [*checks, _WRITTEN]


@contextmanager
def _unchanged_sources(case: TestCase) -> Iterator[None]:
    """Raise Fault BAD_CASE after the block, in place of any other error, if a file of the scene has changed."""
    try:
        yield
    finally:
        scene, error = scene_of(case), sys.exc_info()[1]
        is_interrupted = error is not None and not isinstance(error, Exception)
        if not is_interrupted and digest_of(type(scene)) != case.attributes["sources"]:
            files = f"{scene._scene_file.name} or a source that it names"
            raise Fault(Reason.BAD_CASE, f"{files} changed during the run, so it ran something else; run it again")


@lru_cache(maxsize=4096)
def _build_program(scene: type[SceneTestCase], platform: str) -> Any:
    sources = absolute_sources(scene.CALLABLE, scene._scene_file.parent)
    return RUNTIMES.get(scene._scene_runtime)().build(sources, platform, level=scene._scene_level)
