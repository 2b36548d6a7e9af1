"""Runs scenes: the arguments in guarded memory, the runtime's program over them, and what it did to them."""

from __future__ import annotations

import atexit
import copy
import itertools
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.worker_abilities import DeviceRequest
from optest.errors import OptestError, Unavailable
from optest.generators.resolve import seed_global_state
from optest.memory.buffers import Buffer, require_written
from optest.numerics import Array, bits, dtype_of
from optest.registry import load_file, load_object
from optest.scenes.artifacts import Recorder, collect_outputs, folder_of
from optest.scenes.cases import PREFIX, case_of, digest_of, scene_of
from optest.scenes.declaration import ArgDirection, SceneTestCase, TaskArgs, tensors_of
from optest.scenes.runtimes import RUNTIMES, Recording, RunOptions, SceneWorker, absolute_sources
from optest.scenes.runtimes.callables import directions_in
from optest.settings import variables_set
from optest.spec import Check, CheckState, Fault, NamedOutput, Reason, Rule, RuleClass, TensorSpec, TestCase

_OPTIONS = ("device", "device_ids", "enable_profiling", "dump_tensor", "build", "log_level")
_CHECKS = (
    Check(name="inputs unchanged", state=CheckState.DONE),
    Check(name="guard zones", state=CheckState.DONE, detail="64 KiB on each side of every tensor"),
)
_WRITTEN = Check(
    name="outputs written", state=CheckState.DONE, detail="where one has its initial value, by a second run"
)
_GUARD_BYTES = 1 << 16
"""A tile or a row that is written behind the end falls into it."""
_PATHS = ("_DIR", "_PATH")
_SOURCES = frozenset([".py", ".c", ".cc", ".cpp", ".cu", ".cl", ".h", ".hh", ".hpp", ".cuh", ".inc"])
_made: dict[str, TaskArgs] = {}
"""The arguments that the generator made for the case that runs next, by its key."""
_constant: dict[str, list[str]] = {}
"""Names of the outputs of which the golden has one value only, by the key of the case."""


class SceneArguments:
    """The generator of a scene's arguments and its golden."""

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[NamedOutput] | None]:  # noqa: ARG002
        """No inputs, since the driver takes the arguments as they are, and the outputs as ``compute_golden`` has them.

        Raises:
            Fault: BAD_CASE for arguments that are none, REFERENCE_FAILED for a golden that is none.
        """
        scene, params = scene_of(case), copy.deepcopy(case_of(case).params)
        seed_global_state(case)
        made = _function(scene, "generate_args", "generate_inputs")(params)
        if not isinstance(made, TaskArgs):
            raise Fault(Reason.BAD_CASE, f"generate_args returned {type(made).__name__}, but should return TaskArgs")
        arrays = _arrays(made)
        for one, other in itertools.combinations(arrays, 2):  # a runtime gets each by itself: they would be two others
            if np.may_share_memory(arrays[one], arrays[other]):
                raise Fault(Reason.BAD_CASE, f"tensors {one} and {other} share memory; give each its own")
        args = made.clone({name: np.array(array, order="C") for name, array in arrays.items()})
        directions_of(scene, args)
        _made.clear()
        _constant.clear()
        _made[case.key] = args
        return (), (_golden(case, params, made, args) if case.attributes["golden"] else None)


def _function(scene: SceneTestCase, name: str, name_in_file: str) -> Callable[..., Any]:
    """A method of the scene, or what takes its place in the file ``GOLDEN``."""
    if not scene.GOLDEN:
        return getattr(scene, name)  # type: ignore[no-any-return]
    file = scene._scene_file.parent / scene.GOLDEN
    return getattr(load_file(file, name=f"optest_golden_{file.stem}"), name_in_file)  # type: ignore[no-any-return]


def _golden(case: TestCase, params: Mapping[str, Any], made: TaskArgs, before: TaskArgs) -> list[NamedOutput]:
    scene, golden = scene_of(case), made.clone()
    try:
        _function(scene, "compute_golden", "compute_golden")(golden, params)
    except Exception as error:
        raise Fault(Reason.REFERENCE_FAILED, f"compute_golden raised {type(error).__name__}: {error}") from error
    expected, directions = _arrays(golden), directions_of(scene, before)
    outputs, same = [], list[str]()
    for name in [each for each, direction in directions.items() if direction is not ArgDirection.IN]:
        first, value = getattr(before, name), expected[name]
        if (value.shape, value.dtype) != (first.shape, first.dtype):
            shapes = [f"{each.dtype}{list(each.shape)}" for each in (value, first)]
            raise Fault(Reason.REFERENCE_FAILED, f"compute_golden made {name} {shapes[0]}, but it is {shapes[1]}")
        if value.size and np.all((first == value) | ((first != first) & (value != value))):  # any NaN is equal
            same.append(name)
        elif value.size > 1 and np.all((value == value.flat[0]) | (value != value)):
            _constant.setdefault(case.key, []).append(name)
        outputs.append(NamedOutput(name, value, rule=_rule(case, value)))
    written = [name for name in same if directions[name] is ArgDirection.OUT]
    if written or (same and len(same) == sum(bool(each.value.size) for each in outputs)):
        raise Fault(
            Reason.REFERENCE_FAILED,
            f"compute_golden leaves {', '.join(written or same)} as generate_args made it: a kernel that does nothing "
            "would pass; let it begin with other values",
        )
    return outputs


def _rule(case: TestCase, value: Array) -> Rule | None:
    """What is allowed where nobody states a tolerance (the predecessor's: 1e-5; of 16 bits, 1e-3).

    None where one is stated: a rule beside it would silently take its place where zeros pass by it.
    """
    kind = dtype_of(value.dtype)
    if not kind.is_inexact:
        return Rule(kind=RuleClass.EXACT, stands=True)
    stated = [each.tolerance for each in case.tolerances if each.output is None]
    if any(each.rtol is not None or each.atol is not None for each in stated):
        return None
    allowed = 1e-3 if kind.bits <= 16 else 1e-5
    return Rule(kind=RuleClass.CLOSE, source="optest.scenes", close=(allowed, allowed))


def _arrays(args: TaskArgs) -> dict[str, Array]:
    """The tensors as NumPy arrays, where it is possible over their memory.

    Raises:
        Fault: BAD_CASE for a value that is none.
    """
    arrays: dict[str, Array] = {}
    for name, value in tensors_of(args).items():
        torch = sys.modules.get("torch")
        is_of_torch = torch is not None and isinstance(value, torch.Tensor)
        arrays[name] = load_object("optest.torch.tensors:as_array")(value) if is_of_torch else value
        if not isinstance(arrays[name], np.ndarray):
            raise Fault(Reason.BAD_CASE, f"tensor {name} is {type(value).__name__}, expected an array or a tensor")
        dtype_of(arrays[name].dtype)
    return arrays


def directions_of(scene: SceneTestCase, args: TaskArgs) -> dict[str, ArgDirection]:
    """What is done with each tensor, as the ``signature`` in ``CALLABLE`` says; without one all may be written.

    Raises:
        Fault: BAD_CASE if the signature does not fit the arguments, or has no output.
    """
    names = args.tensor_names()
    orchestration = scene.CALLABLE.get("orchestration")
    inner = orchestration if isinstance(orchestration, Mapping) else {}
    stated = scene.CALLABLE.get("signature", inner.get("signature"))
    if stated is None:
        return dict.fromkeys(names, ArgDirection.INOUT)
    kinds = directions_in(stated)
    if not len(names) <= len(kinds) <= len(names) + len(args.scalar_names()):
        text = f"the signature has {len(kinds)} entries, but generate_args makes {len(names)} tensors"
        raise Fault(Reason.BAD_CASE, text)
    found = dict(zip(names, kinds, strict=False))
    if set(found.values()) <= {ArgDirection.IN}:
        raise Fault(Reason.BAD_CASE, "the signature has no output, so that nothing would be compared")
    return found


class SceneDriver(BackendDriver):
    """Asks the runtime that a scene names. One worker of it is open for each runtime and set of devices."""

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
        scene, stated = scene_of(case), case.attributes
        return DeviceRequest(
            platform=stated["platform"],
            runtime=scene._scene_runtime,
            count=case_of(case).device_count,
            level=scene._scene_level,
            file=stated["file"],
        )

    def command_line(self, case: TestCase) -> Sequence[str]:
        stated = case.attributes
        name = f"{case.descriptor.name.removeprefix(PREFIX)}::{stated['case']}"
        words = ["run", "--source", f"scene:{stated['file']}", "--platform", stated["platform"], "--case", name]
        more = {"--manual": "include" * ("manual" in case.tags), "--seed": str(case.seed or "")}
        return [*words, *(word for flag, value in more.items() if value for word in (flag, value))]

    def prepare(self, case: TestCase) -> None:
        with _same_sources(case):
            self._program(case)

    def _program(self, case: TestCase) -> Any:
        try:
            scene: Any = type(scene_of(case))
            return _built(scene, case.attributes["platform"])
        except Unavailable as error:
            raise Fault(Reason.UNAVAILABLE, str(error)) from None
        except OptestError as error:
            raise Fault(Reason.BAD_CASE, str(error)) from None

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002 - the generator kept them
        with _same_sources(case):
            return self._outputs(case)

    def _outputs(self, case: TestCase) -> Sequence[Any]:
        program, scene, args = self._program(case), scene_of(case), _made[case.key]
        directions, folder = directions_of(scene, args), folder_of(scene, case, self._ids(case))
        profiles = bool(self._options.get("enable_profiling")) and case.id not in self._recorded  # of the first round
        self._recorded.add(case.id)
        recorder = Recorder(case, folder, profiles=profiles, dumps=bool(self._options.get("dump_tensor")))
        runtime, beside = RUNTIMES.get(scene._scene_runtime)(), scene._scene_file.parent
        variables = {
            name: str(beside / value) if name.endswith(_PATHS) else str(value)
            for name, value in scene.RUNTIME_ENV.items()
        }
        if runtime.log_variable and self._options.get("log_level"):
            variables[runtime.log_variable] = self._options["log_level"]
        if runtime.profile_variable and recorder.profiles:
            variables[runtime.profile_variable] = str(recorder.make_folder())
        options = RunOptions(config=case_of(case).config, level=scene._scene_level, recording=recorder)
        guarded, buffers = _guarded(args)
        with variables_set(variables):
            self._worker(case).run(program, guarded, options)
        recorder.write()
        for name, buffer in buffers.items():
            is_read_alone = directions[name] is ArgDirection.IN
            if change := buffer.mutated(getattr(args, name)) if is_read_alone else buffer.outside():
                raise change.fault(Reason.INPUT_MUTATED if change.place == "element" else Reason.OUT_OF_BOUNDS)
        outputs = {
            name: np.array(buffers[name].array) for name, each in directions.items() if each is not ArgDirection.IN
        }
        # A kernel that leaves elements out would pass where the golden has the initial values: poison shows them.
        kept = {
            name: bits(getattr(args, name)) == bits(array)
            for name, array in outputs.items()
            if directions[name] is ArgDirection.OUT and case.attributes["golden"]
        }
        if any(mask.any() for mask in kept.values()):
            guarded, buffers = _guarded(args, poisoned=kept)
            with variables_set(variables):
                self._worker(case).run(program, guarded, replace(options, recording=Recording()))
            require_written({name: (outputs[name], mask & buffers[name].untouched()) for name, mask in kept.items()})
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

    def _close(self) -> None:
        """The workers of this process; a worker's process does it when it ends."""
        while self._workers:
            self._workers.popitem()[1].close()

    def checks(self, case: TestCase) -> Sequence[Check]:
        runtime = scene_of(case)._scene_runtime
        why = f"runtime {runtime} copies the tensors: its kernels write to other memory"
        copies = RUNTIMES.get(runtime)().copies
        looked_at = [replace(each, state=CheckState.NOT_POSSIBLE, detail=why) if copies else each for each in _CHECKS]
        detail = "elements at wrong positions are not detected: every expected element is the same in "
        notes = [
            Check(name="constant outputs", state=CheckState.NOTE, detail=detail + ", ".join(names))
            for key, names in _constant.items()
            if key == case.key
        ]
        return [*looked_at, _WRITTEN, *notes]


@contextmanager
def _same_sources(case: TestCase) -> Iterator[None]:
    """What happens inside is the case's, if the files of the scene are still those of which its identity speaks.

    Raises:
        Fault: BAD_CASE if they are not, in place of any other error.
    """
    try:
        yield
    finally:
        scene, error = scene_of(case), sys.exc_info()[1]
        is_interrupted = error is not None and not isinstance(error, Exception)
        if not is_interrupted and digest_of(type(scene)) != case.attributes["sources"]:
            what = f"{scene._scene_file.name} or a source that it names"
            raise Fault(Reason.BAD_CASE, f"{what} was changed during the run: what ran is not the case; run it again")


@lru_cache(maxsize=4096)
def _built(scene: type[SceneTestCase], platform: str) -> Any:
    sources = absolute_sources(scene.CALLABLE, scene._scene_file.parent)
    return RUNTIMES.get(scene._scene_runtime)().build(sources, platform, level=scene._scene_level)


def _guarded(args: TaskArgs, poisoned: Container[str] = ()) -> tuple[TaskArgs, dict[str, Buffer]]:
    """The arguments with every tensor in memory between guard zones, some with poison in place of their values."""
    buffers = {}
    for name, array in tensors_of(args).items():
        spec = TensorSpec(dtype=dtype_of(array.dtype), shape=array.shape)
        buffers[name] = Buffer.allocate(spec, name=name, guard_bytes=_GUARD_BYTES)
        if name not in poisoned:
            buffers[name].put(array)
    return args.clone({name: buffer.array for name, buffer in buffers.items()}), buffers
