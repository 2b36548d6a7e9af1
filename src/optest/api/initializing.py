"""``optest init pytest``: the lines that switch the plug-in on, in the file that pytest reads for this folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from optest.api.collecting import top_keys
from optest.api.ini_text import CannotChange, IniText, ini_text, lines_to_add
from optest.errors import UsageError
from optest.store import write_atomically

__all__ = ["init_pytest"]

_FILES = (
    *("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"),
    *("pyproject.toml", "tox.ini", "setup.cfg"),
)
"""In the order in which pytest looks; the first four are taken for what they are called."""
_ALWAYS_READ = _FILES[:4]
_NO_PLACE_FOR_CASES = frozenset({"node_modules", "site-packages", "build", "dist", "__pycache__", "venv"})


def init_pytest(folder: Path, models: Sequence[str]) -> list[str]:
    """Switch the plug-in on for the project in ``folder`` and return what is said of it.

    ``models`` are the files and folders of cases, relative to ``folder``; without any, those that lie below it.

    Raises:
        UsageError: where the file that pytest reads cannot be changed safely, with the lines to add by hand.
    """
    for name in models:
        if not (folder / name).exists():
            raise UsageError(f"{name} is not there\n  create it first, or name the folder where the model cases lie")
    found = tuple(models) or tuple(_folders_with(folder, {"model", "cases"}))
    path, file = _file_of(folder)
    before = file.text
    try:
        after = file.with_lines(found)
        stated = (file.options() or {}).get("optest_models")
    except CannotChange as error:
        listed = "\n".join(f"    {line}" for line in lines_to_add(file, found))
        raise UsageError(f"{path} is left as it is: {error}\n  add to it by hand:\n{listed}") from None
    said = []
    if after == before:
        said.append(f"{path} switches the plug-in on already; nothing was written")
    else:
        write_atomically(path, after.encode())
        said += [f"{path} now says:", *(f"    {line}" for line in _new_lines(before, after))]
    if stated is not None and models and list(models) != _as_list(stated):
        said.append(f"its optest_models stays {' '.join(_as_list(stated))}; change it there")
    if not found and stated is None:
        said += [
            "no model cases (YAML files with the keys model and cases) lie below this folder",
            "    when there are some, say where: optest init pytest FOLDER; or name their file: pytest FILE.yaml",
        ]
        plans = [Path(each).as_posix() for each in _folders_with(folder, {"cases"})]
        if plans:
            said.append(f"    plans lie there; to have them as tests: optest init pytest {' '.join(plans)}")
    else:
        said += _with_test_file(folder, found)
        said.append("look at them: pytest --list-models")
    return said


_TEST_FILE = '''"""The model cases of this project as tests: what a command line names, beside --model.

    pytest {path} --model NAME -k "torch.add"

optest.pytest_plugin collects them from the files that the ini names (optest_models); there is nothing to write here.
"""
'''


def _with_test_file(folder: Path, models: Sequence[str]) -> Iterator[str]:
    """Write ``test_model_ops.py`` beside the first folder of cases, for command lines that name a test file."""
    first = folder / models[0]
    path = first.parent / "test_model_ops.py" if models[0] != "." else folder / "test_model_ops.py"
    if path.exists():
        return
    name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
    write_atomically(path, _TEST_FILE.format(path=name).encode())
    yield f"{name} is there for command lines that name a test: pytest {name} --model NAME"


def _as_list(stated: object) -> list[str]:
    return list(map(str, stated)) if isinstance(stated, list) else str(stated).split()


def _new_lines(before: str, after: str) -> Iterator[str]:
    old = before.splitlines()
    for line in after.splitlines():
        if line in old:
            old.remove(line)
        elif line.strip():
            yield line.strip()


def _file_of(folder: Path) -> tuple[Path, IniText]:
    """The file that pytest takes its options from in this folder, else one where they can be added.

    Raises:
        UsageError: if it lies above, where this folder's own would hide it, or cannot be read.
    """
    there = {name: ini_text(_read(folder / name), name) for name in _FILES if (folder / name).is_file()}
    for name, file in there.items():
        if name in _ALWAYS_READ or _has_options(file):
            return folder / name, file
    for above in folder.resolve().parents:
        for name in _FILES:
            path = above / name
            if path.is_file() and (name in _ALWAYS_READ or _has_options(ini_text(_read(path), name))):
                raise UsageError(
                    f"pytest reads {path} for this folder, and a file here would hide it\n"
                    f"  switch the plug-in on there: cd {above} && optest init pytest"
                )
    if "pyproject.toml" in there:
        return folder / "pyproject.toml", there["pyproject.toml"]
    return folder / "pytest.ini", ini_text("", "pytest.ini")


def _has_options(file: IniText) -> bool:
    try:
        return file.options() is not None
    except CannotChange:
        return True  # pytest would stumble over it, too; whoever changes it says why it cannot


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _folders_with(folder: Path, keys: Collection[str]) -> Iterable[str]:
    """The topmost folders that hold YAML files with these keys themselves, relative to ``folder``."""
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NO_PLACE_FOR_CASES and not name.startswith("."))
        yaml = (Path(here, name) for name in sorted(files) if name.endswith((".yaml", ".yml")))
        if any(top_keys(each).issuperset(keys) for each in yaml):
            found.append(Path(here).relative_to(folder).as_posix())
            folders.clear()
    return found
