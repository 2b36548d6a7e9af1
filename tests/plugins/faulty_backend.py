"""A backend that is wrong on purpose: ``backend_config.faulty.fault`` says how. The honest answer is 'none'."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from optest.backends import BackendDriver, Fault, Reason, backend_manager
from optest.backends.numpy_reference import NumpyBackend
from optest.spec import Numerics

Arrays = Any
_honest = NumpyBackend()


def _value(case: Any, inputs: Arrays) -> Arrays:
    (out,) = _honest.run(case, inputs)
    out = out.copy()
    out.flat[-1] += 1
    return (out,)


def _nan(case: Any, inputs: Arrays) -> Arrays:
    (out,) = _honest.run(case, inputs)
    return (np.full_like(out, np.nan),)


def _mutate(case: Any, inputs: Arrays) -> Arrays:
    outputs = _honest.run(case, inputs)
    inputs[0].flat[0] += 1
    return outputs


def _refuse(case: Any, inputs: Arrays) -> Arrays:
    raise ValueError("shapes do not match")


def _exit_in_the_middle(status: int) -> Callable[..., Arrays]:
    def fault(case: Any, inputs: Arrays) -> Arrays:
        print("about to exit", file=sys.stderr, flush=True)
        os._exit(status)

    return fault


def _segfault(case: Any, inputs: Arrays) -> Arrays:
    ctypes.string_at(0)


def _kill_self(number: int) -> Callable[..., Arrays]:
    def fault(case: Any, inputs: Arrays) -> Arrays:
        os.kill(os.getpid(), number)
        time.sleep(10)

    return fault


DAMAGED: list[str] = []
"""What a call has left behind in its process."""


def _damage(case: Any, inputs: Arrays) -> Arrays:
    DAMAGED.append(case.id)
    return _honest.run(case, inputs)


def dies_where_damage_was_done(inputs: Arrays, attributes: Any) -> Arrays:
    """The reference of add, which dies as NumPy does where a library broke the heap before."""
    if DAMAGED:
        os.kill(os.getpid(), signal.SIGSEGV)
    return (inputs[0].astype(np.float64) + inputs[1],)


def _heap_of_another(case: Any, inputs: Arrays) -> Arrays:
    if DAMAGED:
        print("malloc(): corrupted top size", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    return _honest.run(case, inputs)


def _raise(error: BaseException) -> Callable[..., Arrays]:
    def fault(case: Any, inputs: Arrays) -> Arrays:
        raise error

    return fault


def _hang_in_c(case: Any, inputs: Arrays) -> Arrays:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).sleep(3600)


def _leave_children(case: Any, inputs: Arrays) -> Arrays:
    """A daemon in a session of its own that cleared its environment."""
    daemon = "import os,time; os.fork() and os._exit(0); os.setsid(); time.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", daemon, case.backend_config["faulty"].get("mark", "")], env={})
    os._exit(3)


def _garbage(case: Any, inputs: Arrays) -> Arrays:
    sys.stdout.write("garbage " * 100_000)
    sys.stdout.flush()
    os.write(1, b"\x00\xff" * 1000)
    return _honest.run(case, inputs)


def _fails_once(case: Any, inputs: Arrays) -> Arrays:
    flag = case.backend_config["faulty"]["flag"]
    if not os.path.exists(flag):
        open(flag, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return _honest.run(case, inputs)


def _fork(case: Any, inputs: Arrays) -> Arrays:
    """Both processes go on as if they were the backend."""
    os.fork()
    return _honest.run(case, inputs)


def _write_into_pipes(case: Any, inputs: Arrays) -> Arrays:
    for fd in range(3, 4096):  # pipes have the numbers that the parent gave them, which may hold many files open
        with suppress(OSError):
            os.write(fd, b"\x05\x00\x00\x00hello")
    return _honest.run(case, inputs)


def _close_pipes(case: Any, inputs: Arrays) -> Arrays:
    os.closerange(3, 4096)
    return _honest.run(case, inputs)


_REALLY_EXIT = os._exit
"""As it was when this module was loaded."""


def _exit_in_the_end(case: Any, inputs: Arrays) -> Arrays:
    atexit.register(_REALLY_EXIT, 0)
    atexit.register(lambda: os._exit(0))
    return (np.zeros_like(_honest.run(case, inputs)[0]),)


def _change_directory(case: Any, inputs: Arrays) -> Arrays:
    os.chdir("/")
    return _honest.run(case, inputs)


def _remove_the_run(case: Any, inputs: Arrays) -> Arrays:
    shutil.rmtree(".optest", ignore_errors=True)
    return _honest.run(case, inputs)


def _kill_the_guard(case: Any, inputs: Arrays) -> Arrays:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)


FAULTS: dict[str, Callable[..., Arrays]] = {
    "damage": _damage,
    "heap of another": _heap_of_another,
    "slip": _raise(NameError("name 'stride' is not defined")),
    "none": _honest.run,
    "value": _value,
    "nan": _nan,
    "zeros": lambda case, inputs: (np.zeros_like(_honest.run(case, inputs)[0]),),
    "shape": lambda case, inputs: (_honest.run(case, inputs)[0][:-1],),
    "broadcastable": lambda case, inputs: (_honest.run(case, inputs)[0][:1],),
    "dtype": lambda case, inputs: (_honest.run(case, inputs)[0].astype(np.float64),),
    "list": lambda case, inputs: [_honest.run(case, inputs)[0].tolist()],
    "none returned": lambda case, inputs: None,
    "no outputs": lambda case, inputs: (),
    "two outputs": lambda case, inputs: _honest.run(case, inputs) * 2,
    "unknown name": lambda case, inputs: {"totally_other": _honest.run(case, inputs)[0]},
    "mutate": _mutate,
    "alone": lambda case, inputs: (_honest.run(case, inputs)[0] + np.float32(len(inputs[0]) == 1),),
    "raise": _refuse,
    "SystemExit": _raise(SystemExit(0)),
    "KeyboardInterrupt": _raise(KeyboardInterrupt()),
    "MemoryError": _raise(MemoryError()),
    "unsupported": _raise(Fault(Reason.UNSUPPORTED, "no such kernel")),
    "compile": _raise(Fault(Reason.COMPILE, "the kernel does not compile")),
    "device lost": _raise(Fault(Reason.DEVICE_LOST, "device 0 fell off the bus")),
    "fallback": _raise(Fault(Reason.FALLBACK, "ran on the CPU")),
    "wrong device": _raise(Fault(Reason.WRONG_DEVICE, "the output is on cpu")),
    "exit 0": _exit_in_the_middle(0),
    "exit 7": _exit_in_the_middle(7),
    "segfault": _segfault,
    "abort": _kill_self(signal.SIGABRT),
    "fpe": _kill_self(signal.SIGFPE),
    "sleep": lambda case, inputs: time.sleep(3600),
    "hang in C": _hang_in_c,
    "children": _leave_children,
    "garbage": _garbage,
    "fails once": _fails_once,
    "fork": _fork,
    "exits 0 in the end": _exit_in_the_end,
    "changes directory": _change_directory,
    "removes the run": _remove_the_run,
    "kills its guard": _kill_the_guard,
    "writes into every pipe": _write_into_pipes,
    "closes every pipe": _close_pipes,
}


class FaultyBackend(BackendDriver):
    kind = "faulty"
    name = "faulty"
    chips = ("f1",)

    def run(self, case: Any, inputs: Arrays) -> Arrays:
        return FAULTS[case.backend_config.get("faulty", {}).get("fault", "none")](case, inputs)


class FaultyBuffersBackend(BackendDriver):
    """Writes into optest's own buffers, and beside them."""

    kind = "faulty"
    name = "faulty-buffers"

    def run_into(self, case: Any, inputs: Arrays, outputs: Arrays) -> None:
        (right,) = _honest.run(case, inputs)
        out = outputs[0]
        match case.backend_config.get("faulty-buffers", {}).get("fault", "none"):
            case "nothing":
                return
            case "tail":
                out.flat[:-3] = right.flat[:-3]
            case "tail and first":
                out.flat[:-3] = right.flat[:-3]
                out.flat[0] += 1
            case "overrun":
                out[...] = right
                ctypes.memset(out.ctypes.data + out.nbytes, 0, 8)
            case "underrun":
                out[...] = right
                ctypes.memset(out.ctypes.data - 4, 0, 4)
            case _:
                out[...] = right


class LateBackend(BackendDriver):
    """Returns before its work is done, as a kernel does that nobody waited for; `checks` is asked after the call."""

    kind = "faulty"
    name = "late"

    def run(self, case: Any, inputs: Arrays) -> Arrays:
        (self.right,) = _honest.run(case, inputs)
        self.out = np.zeros_like(self.right)
        return (self.out,)

    def checks(self, case: Any) -> Any:
        self.out[...] = self.right
        return ()


class InvariantLiar(BackendDriver):
    """Declares itself invariant and is not; both answers are within any tolerance."""

    kind = "faulty"
    name = "invariant-liar"
    numerics = Numerics(invariant=True)
    calls = 0

    def run(self, case: Any, inputs: Arrays) -> Arrays:
        self.calls += 1
        (out,) = _honest.run(case, inputs)
        return (np.nextafter(out, np.inf, dtype=out.dtype) if self.calls % 2 else out,)


def register() -> None:
    for driver in (FaultyBackend(), FaultyBuffersBackend(), LateBackend(), InvariantLiar()):
        if driver.name not in backend_manager.names():
            backend_manager.register(driver)
