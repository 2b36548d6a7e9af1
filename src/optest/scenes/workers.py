"""Runtimes for tests that are no scenes: the value of the fixture ``st_worker``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.core.devices import Leases, command_of_this_process
from optest.core.executors import print_note
from optest.errors import Unavailable, UsageError
from optest.scenes.declaration import TaskArgs
from optest.scenes.runtimes import RUNTIMES, RunOptions, SceneWorker, absolute_sources, lack_of_runtime
from optest.settings.platforms import get_platform
from optest.settings.variables import leases_folder


class SceneWorkers:
    """The runtimes of a platform; each is opened on its first use, and stays open until :meth:`close`.

    Hardware is leased while a program runs; other processes, and the scenes of this session, wait.
    """

    def __init__(self, platform: str, device_ids: Sequence[int]) -> None:
        self.platform, self.device_ids = platform, tuple(device_ids)
        self._workers: dict[str, SceneWorker] = {}

    def run(
        self,
        callable: Mapping[str, Any],  # noqa: A002 - the seed's name
        args: TaskArgs,
        *,
        runtime: str = "cpp",
        level: int = 2,
        **config: Any,
    ) -> None:
        """Build a program as a scene's ``CALLABLE``, with sources relative to the working directory, and run it once.

        The tensors of ``args`` are NumPy arrays; outputs are written in place. ``config`` has the keys of a case's.

        Raises:
            UsageError: for a second runtime if the platform allows one per process.
            Unavailable: if the runtime cannot run on this platform here.
            Fault: if the program cannot be built or fails.
        """
        if lack := lack_of_runtime(runtime, self.platform):
            raise Unavailable(f"runtime {runtime}", lack)
        platform, loaded = get_platform(self.platform), RUNTIMES.get(runtime)()
        if platform.one_runtime_per_process and set(self._workers) - {runtime}:
            others = ", ".join(self._workers)
            raise UsageError(f"{platform.name} allows one runtime per process: {others} is open, so not {runtime}")
        leases = Leases(leases_folder(), (platform,), f"{command_of_this_process()} (st_worker)")
        leases.acquire(self.device_ids, len(self.device_ids), print_note, lambda: False)
        try:
            if runtime not in self._workers:
                self._workers[runtime] = loaded.open(self.platform, self.device_ids)
            program = loaded.build(absolute_sources(callable, Path()), self.platform, level=level)
            self._workers[runtime].run(program, args, RunOptions(config=config, level=level))
        finally:
            leases.release()

    def close(self) -> None:
        while self._workers:
            self._workers.popitem()[1].close()
