"""Declaration of scenes: a class with its kernels, cases, arguments and golden outputs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from optest.errors import UnknownName, UsageError
from optest.registry import load_object

LEVELS = (2, 3)


class ArgDirection(Enum):
    """Direction of a kernel's tensor: read, written, or both."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True)
class Tensor:
    """A tensor argument: ``value`` is a NumPy array or a torch tensor."""

    name: str
    value: Any


@dataclass(frozen=True)
class Scalar:
    """A scalar argument: ``value`` is a number or an instance of a ctypes type."""

    name: str
    value: Any


class TaskArgs:
    """The arguments of one run, each an attribute with its name; tensors in order, then scalars.

    Raises:
        UsageError: for an argument that is no Tensor or Scalar, a name that is taken or no identifier, and a tensor
            after a scalar.
    """

    def __init__(self, *specs: Any) -> None:
        for index, spec in enumerate(specs):
            if not isinstance(spec, (Tensor, Scalar)):
                raise UsageError(f"an argument is {type(spec).__name__}, expected Tensor(…) or Scalar(…)")
            name = str(spec.name)
            if not name.isidentifier() or name.startswith("_") or hasattr(TaskArgs, name):
                raise UsageError(f"an argument has the name {name!r}, expected one that can be an attribute")
            if name in vars(self):
                raise UsageError(f"two arguments have the name {name!r}")
            if isinstance(spec, Tensor) and any(isinstance(x, Scalar) for x in specs[:index]):
                raise UsageError(f"tensor {name!r} is after a scalar; put tensors first")
            setattr(self, name, spec.value)
        self._specs = specs

    @property
    def specs(self) -> list[Tensor | Scalar]:
        """The arguments with their current values, in order."""
        return [replace(spec, value=getattr(self, spec.name)) for spec in self._specs]

    def tensor_names(self) -> list[str]:
        return [spec.name for spec in self._specs if isinstance(spec, Tensor)]

    def scalar_names(self) -> list[str]:
        return [spec.name for spec in self._specs if isinstance(spec, Scalar)]

    def clone(self, values: Mapping[str, Any] | None = None) -> TaskArgs:
        """Return new arguments with ``values`` for some of them, and copies of the values of the others."""
        new = {spec.name: _copy_value(spec.value) for spec in self.specs if spec.name not in (values or {})}
        return TaskArgs(*(replace(spec, value={**new, **(values or {})}[spec.name]) for spec in self._specs))


# The name that scenes use.
TaskArgsBuilder = TaskArgs


def _copy_value(value: Any) -> Any:
    """Return a copy of an array, a tensor or a number; a tensor has ``clone`` for it."""
    clone = getattr(value, "clone", None)
    return clone() if callable(clone) else copy.deepcopy(value)


def tensors_of(args: TaskArgs) -> dict[str, Any]:
    return {name: getattr(args, name) for name in args.tensor_names()}


def numbers_of(args: TaskArgs) -> dict[str, Any]:
    """Return the scalars by name, those of ctypes as numbers."""
    values = {name: getattr(args, name) for name in args.scalar_names()}
    return {name: getattr(value, "value", value) for name, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCase:
    """One entry of ``CASES``; ``platforms`` are those that both the class and the case name."""

    name: str
    platforms: tuple[str, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    manual: bool | tuple[str, ...] = False  # run on request only; or the platforms on which that applies
    device_count: int = 1
    skip_golden: bool = False
    timeout: float | None = None

    def is_manual_on(self, platform: str) -> bool:
        return self.manual if isinstance(self.manual, bool) else platform in self.manual


class SceneTestCase:
    """Base class of scenes: ``CALLABLE`` names the sources, ``CASES`` the parameters of the runs.

    ``RTOL`` and ``ATOL`` bound errors of floats; without both the bound is 1e-5, or 1e-3 for 16 bits. Integers are
    exact. ``RUNTIME_ENV`` are environment variables during the run; values of names that end in ``_DIR`` or ``_PATH``
    are relative to the file. ``SKIP_GOLDEN`` compares nothing. ``GOLDEN`` is a file next to this one whose
    ``generate_inputs(params)`` and ``compute_golden(args, params)`` replace the methods."""

    CALLABLE: ClassVar[Mapping[str, Any]] = {}
    CASES: ClassVar[Sequence[Any]] = ()
    RTOL: ClassVar[float | None] = None
    ATOL: ClassVar[float | None] = None
    RUNTIME_ENV: ClassVar[Mapping[str, str]] = {}
    SKIP_GOLDEN: ClassVar[bool] = False
    GOLDEN: ClassVar[str] = ""

    _scene_level: ClassVar[int]
    _scene_runtime: ClassVar[str]
    _scene_platforms: ClassVar[tuple[str, ...]]
    _scene_file: ClassVar[Path]
    _scene_cases: ClassVar[tuple[SceneCase, ...]] = ()

    def generate_args(self, params: Mapping[str, Any]) -> TaskArgs:
        """Return the arguments of a case, outputs with their initial values."""
        raise NotImplementedError(f"{type(self).__name__} has no generate_args")

    def compute_golden(self, args: TaskArgs, params: Mapping[str, Any]) -> None:
        """Write the expected outputs into ``args``, in place."""
        raise NotImplementedError(f"{type(self).__name__} has no compute_golden")

    @staticmethod
    def test_that_pytest_has_loaded_the_plug_in_of_optest() -> None:
        """Fail if pytest collects it: without the plug-in, which removes it, or in a class that is no scene."""
        raise AssertionError(
            "no case was collected; add `addopts = -p optest.pytest_plugin` to pytest's ini, and @scene_test(…) here"
        )

    @staticmethod
    def run_module(name: str) -> None:
        """Run the scenes of the module as a command and exit with its status, if ``name`` is ``__main__``."""
        if name == "__main__":
            load_object("optest.cli.scene_command:run_module")()


GUARD = SceneTestCase.test_that_pytest_has_loaded_the_plug_in_of_optest.__name__
Scene = TypeVar("Scene", bound=type[SceneTestCase])


def scene_test(
    level: int = 2, runtime: str = "cpp", platforms: Sequence[str] | None = None
) -> Callable[[Scene], Scene]:
    """Return a decorator that declares a scene for ``platforms``; it raises UsageError for invalid cases."""
    level = getattr(level, "value", level)
    if level not in LEVELS:
        raise UsageError(f"level is {level!r}, expected one of {', '.join(map(str, LEVELS))}")

    def declare(scene: Scene) -> Scene:
        scene._scene_level = level
        scene._scene_runtime = runtime
        scene._scene_file = Path(inspect.getfile(scene)).absolute()
        scene._scene_cases = tuple(_read_cases(scene, platforms))
        every = platforms or [platform for case in scene._scene_cases for platform in case.platforms]
        scene._scene_platforms = tuple(dict.fromkeys(every))
        return scene

    return declare


def _read_cases(scene: type[SceneTestCase], platforms: Sequence[str] | None) -> Iterator[SceneCase]:
    names: set[str] = set()
    for number, entry in enumerate(scene.CASES, 1):
        where = f"case {number} of {scene.__name__}"
        if not isinstance(entry, Mapping):
            raise UsageError(f"{where} is {type(entry).__name__}, expected a mapping")
        try:
            case = _read_case(scene, entry, platforms)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        if case.name in names:
            raise UsageError(f"two cases of {scene.__name__} have the name {case.name!r}")
        names.add(case.name)
        yield case
    if not names and vars(scene).get("__test__", True):
        raise UsageError(f"{scene.__name__} has no CASES")


def _read_case(scene: type[SceneTestCase], entry: Mapping[str, Any], platforms: Sequence[str] | None) -> SceneCase:
    known = [field.name for field in fields(SceneCase)]
    if unknown := [str(key) for key in entry if key not in known]:
        raise UnknownName("key", unknown[0], known)
    name = entry.get("name")
    if not isinstance(name, str) or not name or "::" in name or "[" in name:
        raise UsageError(f"name is {name!r}, expected a text without :: and brackets")
    of_case = entry.get("platforms", platforms)
    if isinstance(of_case, str) or not of_case:
        raise UsageError(f"platforms is {of_case!r}, expected a list of names, here or in @scene_test")
    common = tuple(platform for platform in of_case if platforms is None or platform in platforms)
    if not common:
        of_class = ", ".join(platforms or ())
        raise UsageError(f"its platforms ({', '.join(of_case)}) include none of the class ({of_class})")
    config = dict(entry.get("config", {}))
    count = entry.get("device_count", config.get("device_count", 1))
    if type(count) is not int or count < 1:
        raise UsageError(f"device_count is {count!r}, expected 1 or more")
    if count > 1 and scene._scene_level == 2:
        raise UsageError(f"device_count is {count}, but a scene of level 2 has one device; set level=3")
    manual = entry.get("manual", False)
    return SceneCase(
        name=name,
        platforms=common,
        config=config,
        params=dict(entry.get("params", {})),
        manual=(manual,) if isinstance(manual, str) else manual if isinstance(manual, bool) else tuple(manual),
        device_count=count,
        skip_golden=bool(entry.get("skip_golden", scene.SKIP_GOLDEN)),
        timeout=entry.get("timeout"),
    )
