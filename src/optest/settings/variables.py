"""Environment variables; no other module of optest reads the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# Lists the devices that a run holds for itself and its child processes: ``cuda-0,cuda-1``.
HELD_DEVICES = "OPTEST_HELD_DEVICES"


def environment() -> dict[str, str]:
    """Return a copy of the process's environment variables."""
    return dict(os.environ)


def variable_by_default(name: str, value: str) -> str:
    """Return the environment variable ``name``; set it to ``value`` first, also for child processes, if it is unset."""
    return os.environ.setdefault(name, value)


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block, for C code of this process too, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def worker_environment(variables: Mapping[str, str], jobs: int) -> dict[str, str]:
    """Return ``variables`` with the thread limits of a worker as defaults: always one OpenBLAS thread, and one OpenMP
    and MKL thread if there are several ``jobs``."""
    # More threads would compete with those of the other workers.
    limits = {"OPENBLAS_NUM_THREADS": "1"}
    if jobs > 1:
        limits |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**limits, **variables}


def infini_root(variables: Mapping[str, str] | None = None) -> Path:
    """Return the folder in which Infini libraries are installed: ``INFINI_ROOT``, else ``~/.infini``."""
    variables = environment() if variables is None else variables
    root = variables.get("INFINI_ROOT", "").strip()
    return Path(root).expanduser() if root else Path.home() / ".infini"


def leases_folder(variables: Mapping[str, str] | None = None) -> Path:
    """Return the folder with the device leases of this user on this host: ``OPTEST_LEASES``, else one in ``/tmp``."""
    variables = environment() if variables is None else variables
    folder = variables.get("OPTEST_LEASES", "").strip()
    if folder:
        return Path(folder)
    # Not TMPDIR: a shell and a cron job have to agree on the folder.
    shared = "/tmp"
    if not os.path.isdir(shared):
        import tempfile

        shared = tempfile.gettempdir()
    return Path(shared) / f"optest-{os.getuid() if hasattr(os, 'getuid') else 'leases'}"
