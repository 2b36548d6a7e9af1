"""``--list-models`` and ``--list-cases``: names in the files of cases, without loading a backend."""

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
    """Print one line for each model, or each case; return exit status 0, or 2 if a file cannot be read.

    Raise ``pytest.UsageError`` for a model that no file has.
    """
    cases: list[tuple[str, str]] = []
    faults: list[str] = []
    add_ini_files(config)
    for path in files_of(config):
        try:
            before = len(cases)
            for case in collecting.listed_cases(path):
                where = f"{case.operator}  ({case.path})"
                name = f"{case.model}::{case.name}" if case.model else case.name or "-"
                cases.append((case.model, f"{name}::{where}"))
            if len(cases) == before:
                print(*collecting.notes_of(path), sep="\n", file=sys.stderr)  # noqa: T201
        except OptestError as error:  # noqa: PERF203 - every file is reported
            faults.append(str(error))
    selected = config.getoption("model")
    models = dict.fromkeys(model for model, _ in cases if model)
    slugs = {collecting.slug(name) for name in selected}
    if not faults:
        require_known(selected, models)
    if config.getoption("list_models"):
        lines = [model for model in models if not selected or collecting.slug(model) in slugs]
    else:
        lines = [line for model, line in cases if not selected or collecting.slug(model) in slugs]
    for line in lines:
        print(line)  # noqa: T201
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    return 2 if faults else 0


def register_marks(config: pytest.Config) -> None:
    """Register the tags of the cases in all files as marks, for ``--markers``."""
    for path in files_of(config):
        with suppress(OptestError):  # reported by the collection
            for case in collecting.listed_cases(path):
                for tag in case.tags:
                    register_mark(config, tag)


def require_known_in_files(config: pytest.Config) -> None:
    """Raise ``pytest.UsageError`` for a model that no file has, if all files can be read."""
    # Workers of xdist collect after that, and cannot report a wrong name.
    if not config.getoption("model"):
        return
    try:
        models = {x.model: None for path in files_of(config) for x in collecting.listed_cases(path) if x.model}
    except OptestError:
        return  # reported by the collection
    require_known(config.getoption("model"), models)
