"""How a scene is written: a class with its kernels, its cases, its arguments and its golden."""

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
    """What a kernel does with a tensor: reads it, writes it, or both."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True)
class Tensor:
    """One tensor argument: ``value`` is a NumPy array or a torch tensor."""

    name: str
    value: Any


@dataclass(frozen=True)
class Scalar:
    """One scalar argument: a number or an instance of a ctypes type."""

    name: str
    value: Any


class TaskArgs:
    """The arguments of one run, each an attribute by its name; tensors in order, then scalars.

    Raises:
        UsageError: for anything that is no Tensor or Scalar, a name that is taken or no identifier, and a tensor behind
            a scalar.
    """

    def __init__(self, *specs: Any) -> None:
        for place, spec in enumerate(specs):
            if not isinstance(spec, (Tensor, Scalar)):
                raise UsageError(f"an argument is {type(spec).__name__}, expected Tensor(…) or Scalar(…)")
            name = str(spec.name)
            if not name.isidentifier() or name.startswith("_") or hasattr(TaskArgs, name):
                raise UsageError(f"an argument is called {name!r}, expected a name that can be an attribute")
            if name in vars(self):
                raise UsageError(f"two arguments are called {name!r}")
            if isinstance(spec, Tensor) and any(isinstance(each, Scalar) for each in specs[:place]):
                raise UsageError(f"tensor {name!r} stands behind a scalar; tensors come first")
            setattr(self, name, spec.value)
        self._specs = specs

    @property
    def specs(self) -> list[Tensor | Scalar]:
        """The arguments with their present values, in order."""
        return [replace(each, value=getattr(self, each.name)) for each in self._specs]

    def tensor_names(self) -> list[str]:
        return [each.name for each in self._specs if isinstance(each, Tensor)]

    def scalar_names(self) -> list[str]:
        return [each.name for each in self._specs if isinstance(each, Scalar)]

    def clone(self, values: Mapping[str, Any] | None = None) -> TaskArgs:
        """The same with ``values`` of some arguments, and copies of those of all others."""
        new = {each.name: _copied(each.value) for each in self.specs if each.name not in (values or {})}
        return TaskArgs(*(replace(each, value={**new, **(values or {})}[each.name]) for each in self._specs))


TaskArgsBuilder = TaskArgs
"""The name under which scenes make their arguments."""


def _copied(value: Any) -> Any:
    """A copy of an array, a tensor (which calls it ``clone``) or a number."""
    clone = getattr(value, "clone", None)
    return clone() if callable(clone) else copy.deepcopy(value)


def tensors_of(args: TaskArgs) -> dict[str, Any]:
    return {name: getattr(args, name) for name in args.tensor_names()}


def numbers_of(args: TaskArgs) -> dict[str, Any]:
    """The scalars by name, those of ctypes as numbers."""
    values = {name: getattr(args, name) for name in args.scalar_names()}
    return {name: getattr(value, "value", value) for name, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCase:
    """One entry of ``CASES``; ``platforms`` are those of the class and of the case."""

    name: str
    platforms: tuple[str, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    manual: bool | tuple[str, ...] = False
    """Whether it runs on request alone; or the platforms on which it does."""
    device_count: int = 1
    skip_golden: bool = False
    timeout: float | None = None

    def is_manual_on(self, platform: str) -> bool:
        return self.manual if isinstance(self.manual, bool) else platform in self.manual


class SceneTestCase:
    """The base of scenes. ``CALLABLE`` says what is compiled, ``CASES`` with which parameters it runs.

    ``RTOL`` and ``ATOL`` bound errors of floats; where neither is stated, 1e-5 of float32 and wider, 1e-3 of 16 bits.
    Integers are exact. ``RUNTIME_ENV`` are variables of the process while it runs; values of names that end in ``_DIR``
    or ``_PATH`` are relative to the file. ``SKIP_GOLDEN`` compares nothing.
    """

    CALLABLE: ClassVar[Mapping[str, Any]] = {}
    CASES: ClassVar[Sequence[Any]] = ()
    RTOL: ClassVar[float | None] = None
    ATOL: ClassVar[float | None] = None
    RUNTIME_ENV: ClassVar[Mapping[str, str]] = {}
    SKIP_GOLDEN: ClassVar[bool] = False
    GOLDEN: ClassVar[str] = ""
    """A file beside this one with ``generate_inputs(params)`` and ``compute_golden(args, params)``, which take the
    place of the methods."""

    _scene_level: ClassVar[int]
    _scene_runtime: ClassVar[str]
    _scene_platforms: ClassVar[tuple[str, ...]]
    _scene_file: ClassVar[Path]
    _scene_cases: ClassVar[tuple[SceneCase, ...]] = ()

    def generate_args(self, params: Mapping[str, Any]) -> TaskArgs:
        """The arguments of a case, outputs with their initial values."""
        raise NotImplementedError(f"{type(self).__name__} has no generate_args")

    def compute_golden(self, args: TaskArgs, params: Mapping[str, Any]) -> None:
        """Write what the outputs should be into ``args``, in place."""
        raise NotImplementedError(f"{type(self).__name__} has no compute_golden")

    @staticmethod
    def test_that_pytest_has_loaded_the_plug_in_of_optest() -> None:
        """What pytest finds without the plug-in, which takes it out, or in a class that is no scene."""
        raise AssertionError(
            "no case was collected; add `addopts = -p optest.pytest_plugin` to pytest's ini, and @scene_test(…) here"
        )

    @staticmethod
    def run_module(name: str) -> None:
        """Run the scenes of the module ``name`` as a command, if it is ``__main__``, and end with its exit status."""
        if name == "__main__":
            load_object("optest.cli.scene_command:run_module")()


GUARD = SceneTestCase.test_that_pytest_has_loaded_the_plug_in_of_optest.__name__
Scene = TypeVar("Scene", bound=type[SceneTestCase])


def scene_test(
    level: int = 2, runtime: str = "cpp", platforms: Sequence[str] | None = None
) -> Callable[[Scene], Scene]:
    """Declare a class to be a scene of ``runtime``; ``platforms`` are those of all its cases.

    Raises:
        UsageError: for a level that there is not, and for cases that are wrong.
    """
    level = getattr(level, "value", level)
    if level not in LEVELS:
        raise UsageError(f"level is {level!r}, expected one of {', '.join(map(str, LEVELS))}")

    def declare(scene: Scene) -> Scene:
        scene._scene_level = level
        scene._scene_runtime = runtime
        scene._scene_file = Path(inspect.getfile(scene)).absolute()
        scene._scene_cases = tuple(_cases(scene, platforms))
        stated = platforms or [each for case in scene._scene_cases for each in case.platforms]
        scene._scene_platforms = tuple(dict.fromkeys(stated))
        return scene

    return declare


def _cases(scene: type[SceneTestCase], platforms: Sequence[str] | None) -> Iterator[SceneCase]:
    names: set[str] = set()
    for place, stated in enumerate(scene.CASES):
        where = f"case {place + 1} of {scene.__name__}"
        if not isinstance(stated, Mapping):
            raise UsageError(f"{where} is {type(stated).__name__}, expected a mapping")
        try:
            case = _case(scene, stated, platforms)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        if case.name in names:
            raise UsageError(f"two cases of {scene.__name__} are called {case.name!r}")
        names.add(case.name)
        yield case
    if not names and vars(scene).get("__test__", True):
        raise UsageError(f"{scene.__name__} has no CASES")


def _case(scene: type[SceneTestCase], stated: Mapping[str, Any], platforms: Sequence[str] | None) -> SceneCase:
    known = [each.name for each in fields(SceneCase)]
    if unknown := [str(key) for key in stated if key not in known]:
        raise UnknownName("key", unknown[0], known)
    name = stated.get("name")
    if not isinstance(name, str) or not name or "::" in name or "[" in name:
        raise UsageError(f"name is {name!r}, expected a text without :: and brackets")
    own = stated.get("platforms", platforms)
    if isinstance(own, str) or not own:
        raise UsageError(f"platforms is {own!r}, expected a list of names, here or in @scene_test")
    common = tuple(each for each in own if platforms is None or each in platforms)
    if not common:
        of_the_class = ", ".join(platforms or ())
        raise UsageError(
            f"its platforms ({', '.join(own)}) and those of the class ({of_the_class}) have none in common"
        )
    config = dict(stated.get("config", {}))
    count = stated.get("device_count", config.get("device_count", 1))
    if type(count) is not int or count < 1:
        raise UsageError(f"device_count is {count!r}, expected 1 or more")
    if count > 1 and scene._scene_level == 2:
        raise UsageError(f"device_count is {count}, but a scene of level 2 has one device; it needs level=3")
    manual = stated.get("manual", False)
    return SceneCase(
        name=name,
        platforms=common,
        config=config,
        params=dict(stated.get("params", {})),
        manual=(manual,) if isinstance(manual, str) else manual if isinstance(manual, bool) else tuple(manual),
        device_count=count,
        skip_golden=bool(stated.get("skip_golden", scene.SKIP_GOLDEN)),
        timeout=stated.get("timeout"),
    )
