"""``python -m MODULE`` in a fork of a process that has imported what most programs need: started in no time.

A fork begins where ``python -m`` would after these imports: in its own folder, environment, ``sys.path`` and session,
with the filter for warnings that ``PYTHONWARNINGS`` names. As a console script it has no working directory in
``sys.path``. Tests of what is imported, and when, and tests that send signals start the real program instead.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COMMAND_LINE = ("numpy", "optest.api.running", "optest.cli", "optest.operators.catalogue", "optest.torch.facts")
"""What every command has imported when it comes to its work; no module of these reads the environment."""
TORCH = ("torch", "pytest")
SAMPLES_OF_TORCH = "torch.testing._internal.common_methods_invocations"

_servers: dict[tuple[str, ...], subprocess.Popen[str]] = {}
_spent: list[float] = []
_LATE = "late"


def processor_seconds() -> float:
    """Of programs that have ended, while the process that they were forked of has not."""
    return sum(_spent)


def close() -> None:
    """End the processes that programs are forked of."""
    while _servers:
        _servers.popitem()[1].communicate()
    _spent.clear()


def _server(preloaded: tuple[str, ...]) -> subprocess.Popen[str]:
    if preloaded not in _servers:
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        _servers[preloaded] = subprocess.Popen([sys.executable, __file__, *preloaded], env=plain, **pipes)
    return _servers[preloaded]


def run(
    module: str,
    *words: str,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float = 600,
    further: Sequence[str] = TORCH,
    is_script: bool = False,
    memory: int = 0,
) -> subprocess.CompletedProcess[str]:
    """What ``subprocess.run([sys.executable, "-m", module, *words], ...)`` returns, or that of a console script.

    ``further`` are modules that are imported beside those of optest's command line. ``memory`` limits the bytes
    that the program takes in addition to those of the process that it is forked of.

    Raises:
        subprocess.TimeoutExpired: after ``timeout`` seconds; the program and what it started are ended.
    """
    server = _server((*COMMAND_LINE, *further))
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory(prefix="warm-python-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        program = {"module": module, "words": words, "is_script": is_script, "env": dict(env), "timeout": timeout}
        program["memory"] = memory
        server.stdin.write(json.dumps({**program, "cwd": str(cwd), "out": str(out), "err": str(err)}) + "\n")
        server.stdin.flush()
        status, seconds = server.stdout.readline().split()
        _spent.append(float(seconds))
        if status == _LATE:
            raise subprocess.TimeoutExpired([module, *words], timeout, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess([module, *words], int(status), out.read_text(), err.read_text())


def _serve() -> None:
    """For each line of standard input start a program; when it has ended, print its status and processor time."""
    for name in sys.argv[1:]:
        if importlib.util.find_spec(name.partition(".")[0]):  # torch may be absent
            __import__(name)
    own = list(sys.path)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        program = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(program, own)
        is_late, status, seconds = _end_of(child, program["timeout"])
        sys.stdout.write(f"{_LATE if is_late else os.waitstatus_to_exitcode(status)} {seconds}\n")
        sys.stdout.flush()


def _end_of(child: int, timeout: float) -> tuple[bool, int, float]:
    ends = time.monotonic() + timeout
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            return False, status, used.ru_utime + used.ru_stime
        if time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
            return True, status, used.ru_utime + used.ru_stime
        time.sleep(0.01)


def _become(program: Mapping[str, Any], path: Sequence[str]) -> None:
    os.setsid()
    if program["memory"]:
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + program["memory"],) * 2)
    os.chdir(program["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, target in ((1, program["out"]), (2, program["err"])):
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.environ.clear()
    os.environ.update(program["env"])
    further = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    first = os.path.dirname(sys.executable) if program["is_script"] else program["cwd"]  # as Python puts it there
    sys.path[:] = [first, *further, *path[1:]]
    if action := os.environ.get("PYTHONWARNINGS"):
        warnings.simplefilter(action)  # type: ignore[arg-type]
    sys.argv[:] = [program["module"], *program["words"]]
    status: object = None
    try:
        runpy.run_module(program["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    if isinstance(status, str):
        sys.stderr.write(f"{status}\n")
    # As multiprocessing ends its forks: the interpreter would free every module, each in a page of its own.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    _serve()
