"""Runtimes for tests that are written by hand: what the fixture ``st_worker`` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.errors import Unavailable
from optest.scenes.declaration import TaskArgs
from optest.scenes.runtimes import RUNTIMES, RunOptions, SceneWorker, absolute_sources, lack_of_runtime

__all__ = ["SceneWorkers"]


class _NoRecording:
    profiles = dumps = False

    def span(self, span: Any) -> None: ...

    def tensor(self, task: str, when: str, place: int, array: Any) -> None: ...


class SceneWorkers:
    """The runtimes of a platform; each is opened once, on the first use, and serves until :meth:`close`."""

    def __init__(self, platform: str, device_ids: Sequence[int]) -> None:
        self.platform, self.device_ids = platform, tuple(device_ids)
        self._workers: dict[str, tuple[Any, SceneWorker]] = {}

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
            Unavailable: if the runtime cannot run on this platform here.
            Fault: for whatever keeps the program from its end.
        """
        made, worker = self._open(runtime)
        program = made.build(absolute_sources(callable, Path()), self.platform, level=level)
        worker.run(program, args, RunOptions(config=config, level=level, recording=_NoRecording()))

    def _open(self, runtime: str) -> tuple[Any, SceneWorker]:
        if runtime not in self._workers:
            if lack := lack_of_runtime(runtime, self.platform):
                raise Unavailable(f"runtime {runtime}", lack)
            made = RUNTIMES.get(runtime)()
            self._workers[runtime] = made, made.open(self.platform, self.device_ids)
        return self._workers[runtime]

    def close(self) -> None:
        """Close every runtime that was opened."""
        while self._workers:
            self._workers.popitem()[1][1].close()
