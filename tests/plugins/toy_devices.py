"""Devices that are files: backends for the dispatcher whose cases do what their ``backend_config`` says; those of
``toy_compiler`` are built before.

``TOY_FOLDER`` holds ``log``, a line for every worker that opens devices and for every case, and what is wrong with a
device: ``dead-3`` makes the probe of device 3 fail, ``stubborn-3`` its reset.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver, Fault, Reason, backend_manager
from optest.backends.worker_abilities import DeviceRequest
from optest.settings.platforms import Platform, register_platform

_IN_FOLDER = ("sh", "-c")
for name in ("toy", "toysim"):
    register_platform(
        Platform(
            name=name,
            one_runtime_per_process=name == "toy",
            device_mask="TOY_VISIBLE_DEVICES",
            probe=(*_IN_FOLDER, 'test ! -e "$TOY_FOLDER/dead-{device}" || { echo no answer >&2; exit 4; }'),
            reset=(*_IN_FOLDER, 'test ! -e "$TOY_FOLDER/stubborn-{device}" && rm -f "$TOY_FOLDER/dead-{device}"'),
        ),
        replace=True,
    )


def folder() -> Path:
    return Path(os.environ["TOY_FOLDER"])


class ToyDevices(BackendDriver):
    name = kind = "toy"
    reads_inputs = False  # a device has a copy
    options = ("device",)

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._runtimes: set[str] = set()

    def configure(self, options: Any) -> None:
        self._ids = list(options.get("device_ids", ()))

    def devices_of(self, case: Any) -> DeviceRequest | None:
        known = ("platform", "runtime", "count", "level", "file")
        stated = {key: value for key, value in self._config(case).items() if key in known}
        return (
            None
            if "nothing" in self._config(case)
            else DeviceRequest(**{"platform": "toysim", "runtime": "a", **stated})
        )

    def run(self, case: Any, inputs: Any) -> Any:
        config, request = self._config(case), self.devices_of(case)
        runtime = "" if request is None else request.runtime
        if runtime not in self._runtimes:
            self._log(event="open", runtime=runtime)
            if request is not None and request.platform == "toy":
                self._require_nobody_else()
        if request is not None and request.platform == "toy" and self._runtimes - {runtime}:
            time.sleep(1_000)  # what a second runtime does to a process on a device
        self._runtimes.add(runtime)
        self._log(event="begin", case=case.name, runtime=runtime)
        time.sleep(config.get("sleep_s", 0.0))
        if any((folder() / f"dead-{device}").exists() for device in self._ids):
            raise Fault(Reason.DEVICE_LOST, "the device does not answer")
        self._misbehave(config.get("do", ""))
        self._log(event="end", case=case.name, runtime=runtime)
        return [np.add(*inputs) + config.get("off", 0)]

    def _require_nobody_else(self) -> None:
        """Every process that had one of these devices has ended."""
        for device in self._ids:
            owner = folder() / f"owner-{device}"
            if owner.exists() and (pid := int(owner.read_text())) != os.getpid() and Path(f"/proc/{pid}").exists():
                raise Fault(Reason.DEVICE_LOST, f"device {device} still has process {pid}")
            owner.write_text(str(os.getpid()))

    def _misbehave(self, what: str) -> None:
        what, _, once = what.partition(" until ")
        if once:
            if (folder() / once).exists():
                return
            (folder() / once).touch()
        match what:
            case "crash":
                ctypes.string_at(0)
            case "killed":
                os.kill(os.getpid(), 9)
            case "lose":
                _kill_actor()
            case "hang":
                time.sleep(1_000)
            case "poison" | "ruin":
                for device in self._ids[:1]:
                    (folder() / f"dead-{device}").touch()
                    if what == "ruin":
                        (folder() / f"stubborn-{device}").touch()
                raise Fault(Reason.DEVICE_LOST, "the device does not answer")
            case "random":
                chosen = random.Random(os.urandom(8)).choices(("", "crash", "killed", "poison"), (20, 1, 1, 1))
                self._misbehave(chosen[0])

    def _config(self, case: Any) -> Any:
        return case.backend_config.get(self.name, {})

    def _log(self, **facts: Any) -> None:
        log(self._ids, **facts)


def log(ids: list[int], **facts: Any) -> None:
    seen = {"mask": os.environ.get("TOY_VISIBLE_DEVICES", ""), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
    line = json.dumps({**facts, "time": time.monotonic(), "pid": os.getpid(), "ids": ids, **seen}) + "\n"
    file = os.open(folder() / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def _kill_actor() -> None:
    """What a lost machine is to a run on a cluster: the process of Ray above this one is gone."""
    pid = os.getpid()
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, 9)
    time.sleep(1_000)


class ToyCompiler(ToyDevices):
    name = kind = "toy_compiler"

    def prepare(self, case: Any) -> None:
        time.sleep(self._config(case).get("compile_s", 0.0))
        if "does_not_compile" in self._config(case):
            raise Fault(Reason.COMPILE, "kernel.cpp:3: expected ';'")


class ToyGpu(BackendDriver):
    """Requests nothing, as torch: it computes on the first GPU that its process sees."""

    name = kind = "toy_gpu"
    reads_inputs = False

    def device(self) -> str:
        return "cuda:0"

    def run(self, case: Any, inputs: Any) -> Any:
        log([], event="begin", case=case.name)
        return [np.add(*inputs)]


backend_manager.register(ToyDevices())
backend_manager.register(ToyGpu())
backend_manager.register(ToyCompiler())
