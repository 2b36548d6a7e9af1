"""A runtime of scenes in plain Python, registered as `toy`: a scene's CALLABLE names a function of its own file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from optest.scenes.runtimes import BaseRuntime, RunOptions, register_runtime
from optest.settings.platforms import Platform, register_platform


class ToyWorker:
    """Says in a file, one line each, when it is opened, runs and is closed."""

    def __init__(self, platform: str, device_ids: Sequence[int]) -> None:
        self.platform, self.device_ids = platform, tuple(device_ids)
        self._note("open")

    def _note(self, what: str) -> None:
        ids = ",".join(map(str, self.device_ids))
        with open("toy.log", "a") as file:
            file.write(f"{what} {os.getpid()} {self.platform} {ids}\n")

    def run(self, program: Any, args: Any, options: RunOptions) -> None:
        self._note("run")
        program(args, options, self)

    def close(self) -> None:
        self._note("close")


class ToyRuntime(BaseRuntime):
    name = "toy"
    platforms = ("cpusim", "a2a3sim", "a5sim", "toychip")
    config: ClassVar[Mapping[str, Any]] = {"block_dim": 1}
    profile_variable = "TOY_PROFILES"
    log_variable = "TOY_LOG_LEVEL"

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> Any:  # noqa: A002
        return callable["function"]

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> ToyWorker:
        return ToyWorker(platform, device_ids)


register_runtime("toy", ToyRuntime, replace=True)
register_platform(
    Platform(name="toychip", one_runtime_per_process=True, device_mask="TOY_VISIBLE_DEVICES"), replace=True
)
