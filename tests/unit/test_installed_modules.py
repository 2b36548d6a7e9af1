"""Whether a module is there is asked without importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from optest.registry import is_installed


def test_what_can_be_found_is_installed_and_not_imported(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "would_raise_if_imported.py").write_text("raise SystemError\n")
    monkeypatch.syspath_prepend(folder)
    assert is_installed("would_raise_if_imported")
    assert "would_raise_if_imported" not in sys.modules


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "looks_like_one").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("looks_like_one")


@pytest.mark.parametrize("name", ["no_module_of_that_name", "no_package_of_that_name.part", "sys.part", ""])
def test_what_cannot_be_found_is_not(name: str) -> None:
    assert not is_installed(name)


def test_what_is_imported_is_there_whatever_its_spec_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_by_hand", ModuleType("made_by_hand"))
    assert is_installed("made_by_hand")


def test_absent_framework_is_reported_by_its_backend() -> None:
    code = "import sys; sys.modules['torch'] = None; from optest.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "check", "--backend", "torch", "--op", "relu"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.strip()) == (5, "optest: backend torch is unavailable: pip install torch")
