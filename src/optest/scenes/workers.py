"""Runtimes for tests that are written by hand: what the fixture ``st_worker`` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.core.devices import Leases, command_of_this_process
from optest.core.executors import say
from optest.errors import Unavailable, UsageError
from optest.scenes.declaration import TaskArgs
from optest.scenes.runtimes import RUNTIMES, RunOptions, SceneWorker, absolute_sources, lack_of_runtime
from optest.settings.platforms import platform_called
from optest.settings.variables import leases_folder


class SceneWorkers:
    """The runtimes of a platform; each is opened once, on the first use, and serves until :meth:`close`.

    Hardware is leased while a program runs: other processes, and the scenes of this session, wait for that.
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
        """Build what a scene would name as ``CALLABLE``, with sources from the working directory, and run it once over
        ``args``, whose tensors are NumPy arrays; outputs are written in place. ``config`` are the keys of a case's.

        Raises:
            UsageError: for a second runtime where the platform serves one in a process.
            Unavailable: if the runtime cannot run on this platform here.
            Fault: for whatever keeps the program from its end.
        """
        if lack := lack_of_runtime(runtime, self.platform):
            raise Unavailable(f"runtime {runtime}", lack)
        platform, made = platform_called(self.platform), RUNTIMES.get(runtime)()
        if platform.one_runtime_per_process and set(self._workers) - {runtime}:
            others = ", ".join(self._workers)
            raise UsageError(f"{platform.name} serves one runtime in a process: {others} here, so not {runtime}")
        leases = Leases(leases_folder(), (platform,), f"{command_of_this_process()} (st_worker)")
        leases.acquire(self.device_ids, len(self.device_ids), say, lambda: False)
        try:
            if runtime not in self._workers:
                self._workers[runtime] = made.open(self.platform, self.device_ids)
            program = made.build(absolute_sources(callable, Path()), self.platform, level=level)
            self._workers[runtime].run(program, args, RunOptions(config=config, level=level))
        finally:
            leases.release()

    def close(self) -> None:
        """Close every runtime that was opened."""
        while self._workers:
            self._workers.popitem()[1].close()
