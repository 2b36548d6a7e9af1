"""Runtimes of scenes: who builds what a scene's ``CALLABLE`` names, and runs it on the devices of a platform.

A runtime is a plug-in: a class with ``build`` and ``open``, registered by name with :func:`register_runtime` in a
module that ``OPTEST_PLUGINS`` names or an installed package's entry point ``optest.plugins`` loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from optest.errors import Unavailable
from optest.registry import Registry
from optest.scenes.declaration import TaskArgs
from optest.settings import environment
from optest.settings.platforms import platform_called

__all__ = [
    "RUNTIMES",
    "BaseRuntime",
    "Recording",
    "RunOptions",
    "SceneWorker",
    "Span",
    "lack_of_runtime",
    "ordinal",
    "register_runtime",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One piece of work in a timeline: ``row`` is the thread of ``device`` that did it, times are seconds of
    ``time.monotonic``."""

    name: str
    device: int
    row: int
    began_s: float
    ended_s: float


class Recording:
    """What a run may write down, where the user wants it: spans for the timeline, tensors of tasks. This one is for
    runs of which nobody does."""

    profiles = dumps = False

    def span(self, span: Span) -> None: ...

    def tensor(self, task: str, when: str, place: int, array: Any) -> None:
        """A tensor of a task, ``when`` is ``before`` or ``after`` it; ``place`` is that among the task's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a program is run: the case's ``config`` and the level; ``recording`` takes timeline and dumps."""

    config: Mapping[str, Any]
    level: int
    recording: Recording = field(default_factory=Recording)


class SceneWorker:
    """A runtime that is loaded on its devices; it runs one program after the other."""

    def run(self, program: Any, args: TaskArgs, options: RunOptions) -> None:
        """Run once. The tensors of ``args`` are NumPy arrays, dense and aligned to 64 bytes; outputs are written in
        place.

        Raises:
            Fault: for whatever keeps the program from its end. Anything else that is raised is RAISED.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the worker holds beside memory that ends with the process."""


class BaseRuntime:
    """A runtime by its ``name``, and the platforms on which it runs.

    ``config`` are the keys that a case's ``config`` may have, with their defaults; ``log_variable`` is the variable
    that ``--log-level`` sets, ``profile_variable`` the one with the folder where the runtime itself writes profiles.
    With ``copies`` kernels write to memory that the runtime copies to and from: a write out of bounds, or to an input,
    does not show in the tensors of the scene.
    """

    name: str
    platforms: tuple[str, ...]
    config: ClassVar[Mapping[str, Any]] = {}
    copies: ClassVar[bool] = False
    log_variable: ClassVar[str] = ""
    profile_variable: ClassVar[str] = ""

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        """Why the runtime cannot work on a platform here (``pip install …``), None if it can."""
        return None

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> Any:  # noqa: A002 - the seed's name
        """A program of a scene's ``CALLABLE``, whose sources are absolute paths. Called in several processes: what
        takes long is kept on disk.

        Raises:
            Fault: COMPILE with what the compiler says, BAD_CASE for a ``CALLABLE`` that is wrong.
            Unavailable: if the runtime's package or compiler is missing.
        """
        raise NotImplementedError

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> SceneWorker:
        """Load the runtime; with ``rebuild`` it is compiled from source first."""
        raise NotImplementedError


RUNTIMES: Registry[Callable[[], BaseRuntime]] = Registry("runtime")
RUNTIMES.register("cpp", "optest.scenes.runtimes.cpp.runtime:CppRuntime")
RUNTIMES.register("cuda", "optest.scenes.runtimes.cuda:CudaRuntime")
RUNTIMES.register("opencl", "optest.scenes.runtimes.opencl:OpenClRuntime")
RUNTIMES.register("triton", "optest.scenes.runtimes.triton:TritonRuntime")


def register_runtime(name: str, runtime: Callable[[], BaseRuntime] | str, *, replace: bool = False) -> None:
    """Add a runtime: a class, or the import path of one.

    Raises:
        UsageError: if the name is taken and ``replace`` is False.
    """
    RUNTIMES.register(name, runtime, replace=replace)


def lack_of_runtime(name: str, platform: str) -> str | None:
    """Why scenes of a runtime cannot run on a platform here, None if they can."""
    if name not in RUNTIMES:
        known = ", ".join(RUNTIMES.names())
        return f"runtime {name} is not installed; there are {known}; OPTEST_PLUGINS=MODULE loads the plug-in of another"
    try:
        made = RUNTIMES.get(name)()
    except Unavailable as error:
        return f"runtime {name} is unavailable: {error.remedy}"
    if platform not in made.platforms:
        return f"runtime {name} does not run on {platform}, but on {', '.join(made.platforms)}"
    return made.lack(platform)


def ordinal(platform: str, device_id: int) -> int:
    """The number by which a process calls a device: its place among those that the platform's mask shows it."""
    variable = platform_called(platform).device_mask
    shown = [each.strip() for each in environment().get(variable, "").split(",")] if variable else []
    return shown.index(str(device_id)) if str(device_id) in shown else device_id


def absolute_sources(callable: Any, folder: Path, found: list[Path] | None = None) -> Any:  # noqa: A002 - the seed's name
    """``CALLABLE`` with every ``source`` as a path from the folder of its file; these are added to ``found``."""
    if isinstance(callable, (list, tuple)):
        return [absolute_sources(each, folder, found) for each in callable]
    if not isinstance(callable, Mapping):
        return callable
    made = {key: absolute_sources(value, folder, found) for key, value in callable.items()}
    if isinstance(source := made.get("source"), str):
        made["source"] = str((folder / source).absolute())
        if found is not None:
            found.append(Path(made["source"]))
    return made
