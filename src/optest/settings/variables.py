"""The environment: nothing else in optest reads it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HELD_DEVICES = "OPTEST_HELD_DEVICES"
"""Variable with the devices that a run holds for itself and the processes that it starts: ``cuda-0,cuda-1``."""


def environment() -> dict[str, str]:
    """A copy of the environment; the one place that reads it."""
    return dict(os.environ)


def variable_by_default(name: str, value: str) -> str:
    """The value of a variable; where it has none it has this one from here on, also in child processes."""
    return os.environ.setdefault(name, value)


@contextmanager
def variables_set(stated: Mapping[str, str]) -> Iterator[None]:
    """While inside, these variables have these values, for C code of this process too."""
    before = {name: os.environ.get(name) for name in stated}
    os.environ.update(stated)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def worker_environment(variables: Mapping[str, str], jobs: int) -> dict[str, str]:
    """Return the environment of a worker: one BLAS thread each, since more compete with other workers."""
    limits = {"OPENBLAS_NUM_THREADS": "1"}
    if jobs > 1:
        limits |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**limits, **variables}


def infini_root(variables: Mapping[str, str] | None = None) -> Path:
    """Where Infini libraries are installed: ``INFINI_ROOT``, else ``~/.infini``."""
    variables = environment() if variables is None else variables
    stated = variables.get("INFINI_ROOT", "").strip()
    return Path(stated).expanduser() if stated else Path.home() / ".infini"


def leases_folder(variables: Mapping[str, str] | None = None) -> Path:
    """Where the processes of one user on one host keep who holds which device: the same for a shell and for cron, so no
    variable but ``OPTEST_LEASES`` has a say."""
    variables = environment() if variables is None else variables
    stated = variables.get("OPTEST_LEASES", "").strip()
    if stated:
        return Path(stated)
    shared = "/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir()
    return Path(shared) / f"optest-{os.getuid() if hasattr(os, 'getuid') else 'leases'}"
