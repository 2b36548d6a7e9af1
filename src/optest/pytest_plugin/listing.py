"""``--list-models`` and ``--list-cases``: what the files say, before anything is made of it."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest

from optest.api import collecting
from optest.errors import OptestError
from optest.pytest_plugin.files import add_ini_files, files_of
from optest.pytest_plugin.nodes import register_mark
from optest.pytest_plugin.selecting import require_known


def listed(config: pytest.Config) -> int:
    """Print one line for each model, or each case. The exit status is 0, or 2 if a file could not be read.

    Raises:
        pytest.UsageError: for a model that no file has.
    """
    cases: list[tuple[str, str]] = []
    faults: list[str] = []
    add_ini_files(config)
    for path in files_of(config):
        try:
            before = len(cases)
            for each in collecting.listed_cases(path):
                model, rest = each.model, each.name
                where = f"{each.operator}  ({each.path})"
                cases.append((model, f"{model}::{rest}::{where}" if model else f"{rest or '-'}::{where}"))
            if len(cases) == before:
                print(*collecting.notes_of(path), sep="\n", file=sys.stderr)  # noqa: T201
        except OptestError as error:  # noqa: PERF203 - every file is told
            faults.append(str(error))
    wanted = config.getoption("model")
    models = dict.fromkeys(model for model, _ in cases if model)
    known = {collecting.slug(name) for name in wanted}
    if not faults:
        require_known(wanted, models)
    if config.getoption("list_models"):
        lines = [model for model in models if not wanted or collecting.slug(model) in known]
    else:
        lines = [line for model, line in cases if not wanted or collecting.slug(model) in known]
    for line in lines:
        print(line)  # noqa: T201
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    return 2 if faults else 0


def register_marks(config: pytest.Config) -> None:
    """Let ``--markers`` show the marks of the files; what is wrong with a file is told when it is collected."""
    for path in files_of(config):
        with suppress(OptestError):
            for each in collecting.listed_cases(path):
                for tag in each.tags:
                    register_mark(config, tag)


def require_known_in_files(config: pytest.Config) -> None:
    """Before workers of xdist collect, which have nobody to tell of a wrong name.

    Raises:
        pytest.UsageError: for a model that no file has, if all of them can be read.
    """
    if not config.getoption("model"):
        return
    try:
        models = {each.model: None for path in files_of(config) for each in collecting.listed_cases(path) if each.model}
    except OptestError:
        return  # whoever collects the file says so
    require_known(config.getoption("model"), models)
