"""Runtimes of scenes that are functions of Python: one in the place of simpler's, and another one beside it.

``function_name`` names the function; sources are not read. Every open is noted in ``opened.txt``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.scenes.runtimes import BaseRuntime, register_runtime


def add_one(args: Any) -> None:
    args.y[:] = args.x + 1


def accumulate(args: Any) -> None:
    args.y[:] += args.x


def wrong(args: Any) -> None:
    args.y[:] = args.x


FUNCTIONS = {"aicpu_orchestration_entry": add_one, "accumulate": accumulate, "wrong": wrong}


class StandIn(BaseRuntime):
    name = "tensormap_and_ringbuffer"
    platforms = ("a2a3sim", "a2a3", "a5sim", "cpusim")

    def build(self, callable: Mapping[str, Any], platform: str, *, level: int) -> Any:  # noqa: A002
        return FUNCTIONS[callable["orchestration"]["function_name"]]

    def open(self, platform: str, device_ids: Sequence[int], *, rebuild: bool = False) -> Worker:
        with Path("opened.txt").open("a", encoding="utf-8") as file:
            file.write(f"{self.name} {platform} {','.join(map(str, device_ids))}\n")
        return Worker()


class Other(StandIn):
    name = "other"


class Worker:
    def run(self, program: Any, args: Any, options: Any) -> None:
        program(args)

    def close(self) -> None:
        """Nothing was opened."""


def register() -> None:
    register_runtime(StandIn.name, StandIn)
    register_runtime(Other.name, Other)
