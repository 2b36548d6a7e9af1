"""``optest init pytest``: the lines that switch the plug-in on, for the file that pytest reads for this folder.

No file that is there is changed: the lines are printed. Written are a ``pytest.ini``, where pytest has no file yet, and
an empty ``test_model_ops.py``, for command lines that name a test file.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from optest.api.collecting import PLAN_NAMES, is_plan, listed_cases, notes_of, top_keys
from optest.errors import OptestError, UsageError
from optest.store import write_atomically

_PLUGIN = "optest.pytest_plugin"
_SECTIONS = {
    **dict.fromkeys(("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"), ("pytest", "")),
    "pyproject.toml": ("tool.pytest.ini_options", "[tool.pytest"),
    "tox.ini": ("pytest", "[pytest]"),
    "setup.cfg": ("tool:pytest", "[tool:pytest]"),
}
"""The files in the order in which pytest looks for them, the section that it reads, and the text without which it does
not take its options from such a file."""
_NO_PLACE_FOR_CASES = frozenset({"node_modules", "site-packages", "build", "dist", "__pycache__", "venv"})
_TEST_FILE = '''"""The model cases of this project as tests: what a command line names, beside --model.

    pytest {path} --model NAME -k "torch.add"

optest.pytest_plugin collects them from the files that the ini names (optest_models); there is nothing to write here.
"""
'''


def init_pytest(folder: Path, models: Sequence[str]) -> Iterator[str]:
    """Yield what to add to which file, and what was written; plans go by their names.

    ``models`` are the files and folders of cases, relative to ``folder``; without any, those that lie below it.

    Raises:
        UsageError: for a folder of cases that is not there.
    """
    for name in models:
        if not (folder / name).exists():
            raise UsageError(f"{name} is not there\n  create it first, or name the folder where the model cases lie")
    with_models = _folders_with(folder, lambda path: top_keys(path).issuperset(("model", "cases")))
    with_plans = _folders_with(folder, is_plan)
    folders = tuple(models) or tuple(with_models)
    path = _file_that_pytest_reads(folder)
    yield from _ini_lines(path, [Path(os.path.relpath(folder / name, path.parent)).as_posix() for name in folders])
    yield from _unread(folder, folders)
    if with_models:
        beside = folder if folders[0] == "." else (folder / folders[0]).parent
        test_file = beside / "test_model_ops.py"
        if not test_file.exists():
            name = test_file.relative_to(folder).as_posix() if test_file.is_relative_to(folder) else str(test_file)
            write_atomically(test_file, _TEST_FILE.format(path=name).encode())
            yield f"{name} is there for command lines that name a test: pytest {name} --model NAME"
    if folders or with_plans:
        yield "look at them: pytest --list-cases"
    else:
        yield "no model cases (YAML files with the keys model and cases) lie below this folder, and no plans"
        yield "    when there are some, say where: optest init pytest FOLDER; or name their file: pytest FILE.yaml"
    if with_plans and not folders:
        yield f"    collected are plans called {', '.join(PLAN_NAMES[::2])} (optest_plans in the ini)"
        yield f"    to collect all in these folders: optest init pytest {shlex.join(with_plans)}"


def _unread(folder: Path, models: Sequence[str]) -> Iterator[str]:
    """Yield what pytest will not run of these files and folders of cases: wrong files, and folders without any."""
    for name in models:
        below = sorted((folder / name).rglob("*.y*ml")) if (folder / name).is_dir() else [folder / name]
        files = [path for path in below if not top_keys(path).isdisjoint(("model", "cases", "include"))]
        if not files:
            yield f"{name} holds no model cases and no plans"
        for path in files:
            try:
                if not any(listed_cases(path)):
                    yield from notes_of(path)
            except OptestError as error:  # noqa: PERF203 - every file is reported
                yield str(error)


def _ini_lines(path: Path, models: Sequence[str]) -> Iterator[str]:
    """The section for this file; written where there is no file yet, else to be added by hand."""
    text = _text_of(path)
    is_toml = path.suffix == ".toml"
    is_native = path.name.endswith("pytest.toml") or "[tool.pytest]" in text  # where every value has its type
    section = "tool.pytest" if "[tool.pytest]" in text else _SECTIONS[path.name][0]
    switch: str | list[str] = ["-p", _PLUGIN] if is_native else f"-p {_PLUGIN}"
    lines = []
    if _PLUGIN not in text:
        lines.append(f"addopts = {json.dumps(switch) if is_toml else switch}")
    if models and "optest_models" not in text:
        lines.append(f"optest_models = {json.dumps(list(models)) if is_toml else shlex.join(models)}")
    if not lines:
        yield f"{path} switches the plug-in on already"
        return
    lines.insert(0, f"[{section}]")
    if path.exists():
        yield f"add to {path}, beside what it has:"
    else:
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
        yield f"{path} was written:"
    yield from (f"    {line}" for line in lines)


def _file_that_pytest_reads(folder: Path) -> Path:
    """Where pytest takes its options from in this folder, which may lie above; else where they can be added."""
    for above in (folder, *folder.resolve().parents):
        for name, (_, mark) in _SECTIONS.items():
            path = above / name
            if path.is_file() and mark in _text_of(path):
                return path
    pyproject = folder / "pyproject.toml"
    return pyproject if pyproject.is_file() else folder / "pytest.ini"


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _folders_with(folder: Path, wanted: Callable[[Path], bool]) -> list[str]:
    """The topmost folders that hold wanted YAML files themselves, relative to ``folder``."""
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NO_PLACE_FOR_CASES and not name.startswith("."))
        yaml = (Path(here, name) for name in sorted(files) if name.endswith((".yaml", ".yml")))
        if any(map(wanted, yaml)):
            found.append(Path(here).relative_to(folder).as_posix())
            folders.clear()
    return found
