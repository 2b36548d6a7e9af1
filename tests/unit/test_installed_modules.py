"""Whether a module is there is asked without importing it."""

from __future__ import annotations

import subprocess
import sys
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
