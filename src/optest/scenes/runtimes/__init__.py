"""Runtimes of scenes: they build the program of a scene's ``CALLABLE``, and run it on the devices of a platform.

A runtime is a plug-in: a class with ``build`` and ``open`` that a module registers with :func:`register_runtime`. The
module is named by ``OPTEST_PLUGINS`` or by the entry point ``optest.plugins`` of an installed package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from optest.errors import Unavailable
from optest.registry import Registry
from optest.scenes.declaration import TaskArgs
from optest.settings import environment
from optest.settings.platforms import get_platform

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
    """A piece of work in a timeline, on the thread ``row`` of ``device``; times are seconds of ``time.monotonic``."""

    name: str
    device: int
    row: int
    began_s: float
    ended_s: float


class Recording:
    """Receiver of the spans of a timeline and the tensors of tasks; this base class ignores them."""

    profiles = dumps = False

    def span(self, span: Span) -> None: ...

    def tensor(self, task: str, when: str, index: int, array: Any) -> None:
        """Record argument ``index`` of a task; ``when`` is ``before`` or ``after`` the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run: the case's ``config``, the level, and the ``recording`` for timeline and dumps."""

    config: Mapping[str, Any]
    level: int
    recording: Recording = field(default_factory=Recording)


class SceneWorker:
    """A runtime that is loaded on its devices and runs one program after the other."""

    def run(self, program: Any, args: TaskArgs, options: RunOptions) -> None:
        """Run once. The tensors of ``args`` are dense NumPy arrays aligned to 64 bytes; write outputs in place.

        Raises:
            Fault: if the program fails. Any other exception becomes RAISED.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release resources other than memory, which ends with the process."""


class BaseRuntime:
    """A runtime with its ``name``, and the platforms on which it runs.

    ``config`` has the keys that a case's ``config`` may have, with defaults. ``log_variable`` is the environment
    variable that ``--log-level`` sets, ``profile_variable`` the one with the folder for the runtime's own profiles.
    With ``copies`` kernels write to memory that the runtime copies to and from: a write out of bounds, or to an input,
    is not visible in the tensors of the scene.
    """

    name: str
    platforms: tuple[str, ...]
    config: ClassVar[Mapping[str, Any]] = {}
    copies: ClassVar[bool] = False
    log_variable: ClassVar[str] = ""
    profile_variable: ClassVar[str] = ""

    def lack(self, platform: str) -> str | None:  # noqa: ARG002
        """Return why the runtime cannot run on a platform here (``pip install …``), None if it can."""
        return None

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> Any:  # noqa: A002 - the seed's name
        """Return the program of a ``CALLABLE``, whose sources are absolute paths.

        Several processes call it: store on disk what takes long.

        Raises:
            Fault: COMPILE with the compiler's message, BAD_CASE for an invalid ``CALLABLE``.
            Unavailable: if the runtime's package or compiler is missing.
        """
        raise NotImplementedError

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> SceneWorker:
        """Load the runtime on devices and return a worker; with ``rebuild`` compile it from source first."""
        raise NotImplementedError


RUNTIMES: Registry[Callable[[], BaseRuntime]] = Registry("runtime")
RUNTIMES.register("cpp", "optest.scenes.runtimes.cpp.runtime:CppRuntime")
RUNTIMES.register("cuda", "optest.scenes.runtimes.cuda:CudaRuntime")
RUNTIMES.register("opencl", "optest.scenes.runtimes.opencl:OpenClRuntime")
RUNTIMES.register("triton", "optest.scenes.runtimes.triton:TritonRuntime")


def register_runtime(name: str, runtime: Callable[[], BaseRuntime] | str, *, replace: bool = False) -> None:
    """Register a runtime, a class or its import path; raise UsageError if the name is taken, unless ``replace``."""
    RUNTIMES.register(name, runtime, replace=replace)


def lack_of_runtime(name: str, platform: str) -> str | None:
    """Return why scenes of a runtime cannot run on a platform here, None if they can."""
    if name not in RUNTIMES:
        known = ", ".join(RUNTIMES.names())
        return f"runtime {name} is not installed; known: {known}; load its plug-in by OPTEST_PLUGINS=MODULE"
    try:
        runtime = RUNTIMES.get(name)()
    except Unavailable as error:
        return f"runtime {name} is unavailable: {error.remedy}"
    if platform not in runtime.platforms:
        return f"runtime {name} does not run on {platform}, but on {', '.join(runtime.platforms)}"
    return runtime.lack(platform)


def ordinal(platform: str, device_id: int) -> int:
    """Return a device's number within this process: its index in the platform's mask variable, else ``device_id``."""
    variable = get_platform(platform).device_mask
    visible = [text.strip() for text in environment().get(variable, "").split(",")] if variable else []
    return visible.index(str(device_id)) if str(device_id) in visible else device_id


def absolute_sources(callable: Any, folder: Path, files: list[Path] | None = None) -> Any:  # noqa: A002 - the seed's name
    """Return ``CALLABLE`` with every ``source`` as an absolute path, relative to ``folder``; add these to ``files``."""
    if isinstance(callable, (list, tuple)):
        return [absolute_sources(item, folder, files) for item in callable]
    if not isinstance(callable, Mapping):
        return callable
    resolved = {key: absolute_sources(value, folder, files) for key, value in callable.items()}
    if isinstance(source := resolved.get("source"), str):
        resolved["source"] = str((folder / source).absolute())
        if files is not None:
            files.append(Path(resolved["source"]))
    return resolved
