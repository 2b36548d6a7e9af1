"""What an installed package brings and cannot be imported: a sentence that names it, not a fault of optest."""

from __future__ import annotations

from pathlib import Path

import pytest

from optest.backends import BackendManager
from optest.core import extensions
from optest.errors import UsageError

NAME = "a_package_that_cannot_be_imported"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{NAME}.py").write_text("def half(\n")
    monkeypatch.syspath_prepend(tmp_path)
    return f"{NAME}:THING"


def test_an_operator_of_an_entry_point(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"optest.operators": [("mine", package)]}
    monkeypatch.setattr(extensions, "_done", set())
    monkeypatch.setattr(extensions, "load_entry_points", lambda group: found.get(group, []))
    with pytest.raises(UsageError, match=rf"operator entry point 'mine' \({package}\) raised SyntaxError") as caught:
        extensions.load_extensions([])
    assert "repair or uninstall the package" in str(caught.value)
    assert "importlib" not in str(caught.value)


def test_a_backend_of_an_entry_point(package: str) -> None:
    manager = BackendManager()
    manager.register_path("mine", package)
    with pytest.raises(UsageError, match=rf"backend 'mine' \({package}\) raised SyntaxError"):
        manager.get("mine")
