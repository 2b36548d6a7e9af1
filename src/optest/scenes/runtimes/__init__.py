"""Runtimes of scenes: who builds what a scene's ``CALLABLE`` names, and runs it on the devices of a platform.

A runtime is a plug-in: a class with ``build`` and ``open``, registered by name with :func:`register_runtime` in a
module that ``OPTEST_PLUGINS`` names or an installed package's entry point ``optest.plugins`` loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from optest.errors import Unavailable
from optest.registry import Registry
from optest.scenes.declaration import TaskArgs
from optest.settings import environment
from optest.settings.platforms import platform_called

__all__ = [
    "RUNTIMES",
    "Recording",
    "RunOptions",
    "SceneRuntime",
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


class Recording(Protocol):
    """What a run may write down, where the user wants it: spans for the timeline, tensors of tasks."""

    profiles: bool
    dumps: bool

    def span(self, span: Span) -> None: ...

    def tensor(self, task: str, when: str, place: int, array: Any) -> None:
        """A tensor of a task, ``when`` is ``before`` or ``after`` it; ``place`` is that among the task's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a program is run: the case's ``config`` and the level; ``recording`` takes timeline and dumps."""

    config: Mapping[str, Any]
    level: int
    recording: Recording


class SceneWorker(Protocol):
    """A runtime that is loaded on its devices; it runs one program after the other."""

    def run(self, program: Any, args: TaskArgs, options: RunOptions) -> None:
        """Run once. The tensors of ``args`` are NumPy arrays, dense and aligned to 64 bytes; outputs are written in
        place.

        Raises:
            Fault: for whatever keeps the program from its end. Anything else that is raised is RAISED.
        """
        ...

    def close(self) -> None: ...


class SceneRuntime(Protocol):
    """``config`` are the keys that a case's ``config`` may have, with their defaults."""

    name: str
    platforms: tuple[str, ...]
    config: Mapping[str, Any]

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> Any:  # noqa: A002 - the seed's name
        """A program of a scene's ``CALLABLE``, whose sources are absolute paths. Called in several processes: what
        takes long is kept on disk.

        Raises:
            Fault: COMPILE with what the compiler says, BAD_CASE for a ``CALLABLE`` that is wrong.
            Unavailable: if the runtime's package or compiler is missing.
        """
        ...

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> SceneWorker:
        """Load the runtime; with ``rebuild`` it is compiled from source first."""
        ...


class BaseRuntime:
    """What most runtimes have: no variables of their own, and nothing that is missing.

    ``log_variable`` is the variable that ``--log-level`` sets, ``profile_variable`` the one with the folder where the
    runtime itself writes profiles.
    """

    config: ClassVar[Mapping[str, Any]] = {}
    log_variable: ClassVar[str] = ""
    profile_variable: ClassVar[str] = ""

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        """Why the runtime cannot work on a platform here (``pip install …``), None if it can."""
        return None


RUNTIMES: Registry[Any] = Registry("runtime")
RUNTIMES.register("cpp", "optest.scenes.runtimes.cpp.runtime:CppRuntime")
RUNTIMES.register("cuda", "optest.scenes.runtimes.cuda:CudaRuntime")
RUNTIMES.register("opencl", "optest.scenes.runtimes.opencl:OpenClRuntime")
RUNTIMES.register("triton", "optest.scenes.runtimes.triton:TritonRuntime")


def register_runtime(name: str, runtime: Any, *, replace: bool = False) -> None:
    """Add a runtime: a class, or the import path of one.

    Raises:
        UsageError: if the name is taken and ``replace`` is False.
    """
    RUNTIMES.register(name, runtime, replace=replace)


def lack_of_runtime(name: str, platform: str) -> str | None:
    """Why scenes of a runtime cannot run on a platform here, None if they can."""
    if name not in RUNTIMES:
        return f"runtime {name} is not installed; there are {', '.join(RUNTIMES.names())}"
    try:
        made = RUNTIMES.get(name)()
    except Unavailable as error:
        return f"runtime {name} is unavailable: {error.remedy}"
    if platform not in made.platforms:
        return f"runtime {name} does not run on {platform}, but on {', '.join(made.platforms)}"
    lack: str | None = made.lack(platform) if hasattr(made, "lack") else None
    return lack


def ordinal(platform: str, device_id: int) -> int:
    """The number by which a process calls a device: its place among those that the platform's mask shows it."""
    variable = platform_called(platform).device_mask
    shown = [each.strip() for each in environment().get(variable, "").split(",")] if variable else []
    return shown.index(str(device_id)) if str(device_id) in shown else device_id


def absolute_sources(callable: Any, folder: Path) -> Any:  # noqa: A002 - the seed's name
    """``CALLABLE`` with every ``source`` as a path from the folder of its file."""
    if isinstance(callable, Mapping):
        return {
            key: str((folder / value).absolute())
            if key == "source" and isinstance(value, str)
            else absolute_sources(value, folder)
            for key, value in callable.items()
        }
    if isinstance(callable, (list, tuple)):
        return [absolute_sources(each, folder) for each in callable]
    return callable
