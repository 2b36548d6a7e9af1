"""Runs scenes: the arguments in guarded memory, the runtime's program over them, and what it did to them."""

from __future__ import annotations

import atexit
import copy
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.worker_abilities import DeviceRequest
from optest.errors import OptestError, Unavailable, UsageError
from optest.generators.resolve import seed_global_state
from optest.memory.buffers import Buffer, require_written
from optest.numerics import Array, bits, dtype_of
from optest.registry import load_file, load_object
from optest.scenes.artifacts import OUTPUTS, Recorder, collect_outputs, folder_of
from optest.scenes.cases import PREFIX, case_of, scene_of
from optest.scenes.declaration import ArgDirection, SceneTestCase, TaskArgs
from optest.scenes.runtimes import RUNTIMES, RunOptions, SceneWorker, absolute_sources
from optest.settings import variables_set
from optest.spec import Check, CheckState, Fault, NamedOutput, Reason, Rule, RuleClass, TensorSpec, TestCase

__all__ = ["SceneArguments", "SceneDriver"]

_OPTIONS = ("device", "device_ids", "enable_profiling", "dump_tensor", "build", "log_level")
_CHECKS = (
    Check(name="inputs unchanged", state=CheckState.DONE),
    Check(name="guard zones", state=CheckState.DONE, detail="64 KiB on each side of every tensor"),
    Check(
        name="outputs written",
        state=CheckState.DONE,
        detail="where one has its initial value, a second run begins with poison",
    ),
)
_GUARD_BYTES = 1 << 16
"""A tile or a row that is written behind the end falls into it."""
_PATHS = ("_DIR", "_PATH")
_SOURCES = frozenset([".py", ".c", ".cc", ".cpp", ".cu", ".cl", ".h", ".hh", ".hpp", ".cuh", ".inc"])
_made: dict[str, TaskArgs] = {}
"""The arguments that the generator made for the case that runs next, by its key."""


class SceneArguments:
    """The generator of a scene's arguments and its golden."""

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[NamedOutput] | None]:  # noqa: ARG002
        """No inputs, since the driver takes the arguments as they are, and the outputs as ``compute_golden`` has them.

        Raises:
            Fault: BAD_CASE for arguments that are none, REFERENCE_FAILED for a golden that is none.
        """
        scene, params = scene_of(case), copy.deepcopy(case_of(case).params)
        seed_global_state(case)
        made = _generated(scene, params)
        if not isinstance(made, TaskArgs):
            raise Fault(Reason.BAD_CASE, f"generate_args returned {type(made).__name__}, but should return TaskArgs")
        _require_own_memory(made)
        args = _as_arrays(made)
        directions_of(scene, args)
        _made.clear()
        _made[case.key] = args
        return (), (_golden(scene, params, made) if case.attributes["golden"] else None)


def _generated(scene: SceneTestCase, params: Mapping[str, Any]) -> Any:
    if not scene.GOLDEN:
        return scene.generate_args(params)
    return _golden_of(scene).generate_inputs(params)


def _golden_of(scene: SceneTestCase) -> Any:
    """The file ``GOLDEN``, under a name that no other module has."""
    file = scene._scene_file.parent / scene.GOLDEN
    return load_file(file, name=f"optest_golden_{file.stem}")


def _require_own_memory(args: TaskArgs) -> None:
    """A runtime gets each tensor by itself; two over one memory would be two others.

    Raises:
        Fault: BAD_CASE for two tensors that share memory.
    """
    arrays = {name: _as_array(getattr(args, name), name, copies=False) for name in args.tensor_names()}
    for one, other in itertools.combinations(arrays, 2):
        if np.may_share_memory(arrays[one], arrays[other]):
            raise Fault(Reason.BAD_CASE, f"tensors {one} and {other} share memory; give each its own")


def _golden(scene: SceneTestCase, params: Mapping[str, Any], made: TaskArgs) -> list[NamedOutput]:
    golden = made.clone()
    try:
        if scene.GOLDEN:
            _golden_of(scene).compute_golden(golden, params)
        else:
            scene.compute_golden(golden, params)
    except Exception as error:
        raise Fault(Reason.REFERENCE_FAILED, f"compute_golden raised {type(error).__name__}: {error}") from error
    before, expected = _as_arrays(made), _as_arrays(golden)
    directions = directions_of(scene, before)
    outputs, same = [], list[str]()
    for name in [each for each, direction in directions.items() if direction is not ArgDirection.IN]:
        first, value = getattr(before, name), getattr(expected, name)
        if (value.shape, value.dtype) != (first.shape, first.dtype):
            shapes = [f"{each.dtype}{list(each.shape)}" for each in (value, first)]
            raise Fault(Reason.REFERENCE_FAILED, f"compute_golden made {name} {shapes[0]}, but it is {shapes[1]}")
        if value.size and _are_equal(first, value):
            same.append(name)
        outputs.append(NamedOutput(name, value, rule=_rule(value)))
    written = [name for name in same if directions[name] is ArgDirection.OUT]
    if written or (same and len(same) == sum(bool(each.value.size) for each in outputs)):
        raise Fault(
            Reason.REFERENCE_FAILED,
            f"compute_golden leaves {', '.join(written or same)} as generate_args made it: a kernel that does nothing "
            "would pass; let it begin with other values",
        )
    return outputs


def _are_equal(one: Array, other: Array) -> bool:
    """Whether two arrays are equal for a comparison: zeros of either sign, and any NaN."""
    if not dtype_of(one.dtype).is_inexact:
        return bool(np.array_equal(bits(one), bits(other)))
    return bool(np.all((one == other) | ((one != one) & (other != other))))


def _rule(value: Array) -> Rule:
    """What is allowed where the scene states no tolerance (the predecessor's: 1e-5; of 16 bits, 1e-3)."""
    kind = dtype_of(value.dtype)
    if not kind.is_inexact:
        return Rule(kind=RuleClass.EXACT, stands=True)
    allowed = 1e-3 if kind.bits <= 16 else 1e-5
    return Rule(kind=RuleClass.CLOSE, source="optest.scenes", close=(allowed, allowed))


def _as_arrays(args: TaskArgs) -> TaskArgs:
    """The same with every tensor as a NumPy array."""
    converted = args.clone()
    for name in converted.tensor_names():
        setattr(converted, name, _as_array(getattr(converted, name), name))
    return converted


def _as_array(value: Any, name: str, *, copies: bool = True) -> Array:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = load_object("optest.torch.tensors:as_array")(
            value.detach().cpu().contiguous() if copies else value.detach()
        )
    if not isinstance(value, np.ndarray):
        raise Fault(Reason.BAD_CASE, f"tensor {name} is {type(value).__name__}, but should be an array or a tensor")
    dtype_of(value.dtype)
    array: Array = np.ascontiguousarray(value).reshape(value.shape) if copies else value
    return array


def directions_of(scene: SceneTestCase, args: TaskArgs) -> dict[str, ArgDirection]:
    """What is done with each tensor, as the ``signature`` in ``CALLABLE`` says; without one all may be written.

    Raises:
        Fault: BAD_CASE if the signature does not fit the arguments, or has no output.
    """
    names = args.tensor_names()
    orchestration = scene.CALLABLE.get("orchestration")
    stated = scene.CALLABLE.get("signature")
    if stated is None and isinstance(orchestration, Mapping):
        stated = orchestration.get("signature")
    if stated is None:
        return dict.fromkeys(names, ArgDirection.INOUT)
    kinds = [each for each in stated if each is not None]
    if not len(names) <= len(kinds) <= len(names) + len(args.scalar_names()):
        text = f"the signature has {len(kinds)} entries, but generate_args makes {len(names)} tensors"
        raise Fault(Reason.BAD_CASE, text)
    found = {name: ArgDirection(getattr(kind, "value", kind)) for name, kind in zip(names, kinds, strict=False)}
    if ArgDirection.OUT not in found.values() and ArgDirection.INOUT not in found.values():
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

    def devices_of(self, case: TestCase) -> DeviceRequest | None:
        scene = scene_of(case)
        return DeviceRequest(
            platform=case.attributes["platform"],
            runtime=scene._scene_runtime,
            count=case_of(case).device_count,
            level=scene._scene_level,
            file=case.attributes["file"],
        )

    def command_line(self, case: TestCase) -> Sequence[str]:
        stated = case.attributes
        name = f"{case.descriptor.name.removeprefix(PREFIX)}::{stated['case']}"
        words = ["run", "--source", f"scene:{stated['file']}", "--platform", stated["platform"], "--case", name]
        more = {"--manual": "include" * ("manual" in case.tags), "--seed": str(case.seed or "")}
        return [*words, *(word for flag, value in more.items() if value for word in (flag, value))]

    def prepare(self, case: TestCase) -> None:
        self._program(case)

    def _program(self, case: TestCase) -> Any:
        try:
            scene = scene_of(case)
        except UsageError as error:
            raise Fault(Reason.BAD_CASE, str(error)) from None
        key: Any = type(scene)
        return _built(key, case.attributes["platform"])

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002 - the generator kept them
        program, scene = self._program(case), scene_of(case)
        args = _made.pop(case.key)
        directions = directions_of(scene, args)
        guarded, buffers = _guarded(args)
        recorder = self._recorder(case)
        options = RunOptions(config=case_of(case).config, level=scene._scene_level, recording=recorder)
        made, variables = _runtime(scene._scene_runtime), _variables(scene)
        if made.log_variable and self._options.get("log_level"):
            variables[made.log_variable] = self._options["log_level"]
        if made.profile_variable and recorder.profiles:
            variables[made.profile_variable] = str(recorder.make_folder())
        with variables_set(variables):
            self._worker(case).run(program, guarded, options)
        recorder.write()
        for name, buffer in buffers.items():
            change = buffer.outside()
            if change is not None:
                raise change.fault(Reason.OUT_OF_BOUNDS)
            if directions[name] is ArgDirection.IN:
                _require_unchanged(name, getattr(args, name), buffer.array)
        changed = [name for name, direction in directions.items() if direction is not ArgDirection.IN]
        outputs = {name: np.array(buffers[name].array) for name in changed}
        if case.attributes["golden"]:
            written = {name: outputs[name] for name in changed if directions[name] is ArgDirection.OUT}
            with variables_set(variables):
                self._require_written(case, args, written, options)
        return list(outputs.values())

    def _require_written(
        self, case: TestCase, args: TaskArgs, outputs: Mapping[str, Array], options: RunOptions
    ) -> None:
        """Run once more with poison in the outputs, if elements of these are what they were: a kernel that leaves them
        out would pass where the golden has the initial values.

        Raises:
            Fault: UNWRITTEN.
        """
        kept = {name: bits(getattr(args, name)) == bits(array) for name, array in outputs.items()}
        if not any(mask.any() for mask in kept.values()):
            return
        guarded, buffers = _guarded(args, poisoned=tuple(outputs))
        silent = replace(options, recording=Recorder(case, OUTPUTS, profiles=False, dumps=False))
        self._worker(case).run(self._program(case), guarded, silent)
        require_written({name: (array, kept[name] & buffers[name].untouched()) for name, array in outputs.items()})

    def _recorder(self, case: TestCase) -> Recorder:
        """Profiles are of the first round alone."""
        profiles = bool(self._options.get("enable_profiling")) and case.id not in self._recorded
        self._recorded.add(case.id)
        folder = folder_of(scene_of(case), case, self._ids(case))
        return Recorder(case, folder, profiles=profiles, dumps=bool(self._options.get("dump_tensor")))

    def _ids(self, case: TestCase) -> tuple[int, ...]:
        count = case_of(case).device_count
        return tuple(self._options.get("device_ids") or range(count))[:count]

    def _worker(self, case: TestCase) -> SceneWorker:
        runtime, platform, ids = scene_of(case)._scene_runtime, case.attributes["platform"], self._ids(case)
        key = (runtime, platform, ids)
        if key not in self._workers:
            self._workers[key] = _runtime(runtime).open(platform, ids, rebuild=bool(self._options.get("build")))
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

    def checks(self, case: TestCase) -> Sequence[Check]:  # noqa: ARG002 - the same of every case
        return _CHECKS


@lru_cache(maxsize=64)
def _runtime(name: str) -> Any:
    return RUNTIMES.get(name)()


@lru_cache(maxsize=4096)
def _built(scene: Any, platform: str) -> Any:
    sources = absolute_sources(scene.CALLABLE, scene._scene_file.parent)
    try:
        return _runtime(scene._scene_runtime).build(sources, platform, level=scene._scene_level)
    except Unavailable as error:
        raise Fault(Reason.UNAVAILABLE, str(error)) from None
    except OptestError as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None


def _variables(scene: SceneTestCase) -> dict[str, str]:
    folder = scene._scene_file.parent
    return {
        name: str(folder / value) if name.endswith(_PATHS) else str(value) for name, value in scene.RUNTIME_ENV.items()
    }


def _guarded(args: TaskArgs, poisoned: Sequence[str] = ()) -> tuple[TaskArgs, dict[str, Buffer]]:
    """The arguments with every tensor in memory between guard zones, some with poison in place of their values."""
    placed, buffers = args.clone(), {}
    for name in args.tensor_names():
        array = getattr(args, name)
        spec = TensorSpec(dtype=dtype_of(array.dtype), shape=array.shape)
        buffers[name] = Buffer.allocate(spec, name=name, guard_bytes=_GUARD_BYTES)
        if name not in poisoned:
            buffers[name].array[...] = array
        setattr(placed, name, buffers[name].array)
    return placed, buffers


def _require_unchanged(name: str, before: Array, after: Array) -> None:
    changed = bits(before) != bits(after)
    if changed.any():
        index = [int(axis[0]) for axis in np.nonzero(np.atleast_1d(changed))][: changed.ndim]
        text = f"{int(changed.sum())} of {changed.size} elements of input {name} were changed; the first at {index}"
        raise Fault(Reason.INPUT_MUTATED, text, details={"input": name, "index": index})
