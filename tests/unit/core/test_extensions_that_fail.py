"""Extensions of installed packages that cannot be imported: the message names the package."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from texts import says

from optest import registry
from optest.backends import BackendManager
from optest.core import extensions
from optest.errors import UsageError

NAME = "a_package_that_cannot_be_imported"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{NAME}.py").write_text("def half(\n")
    monkeypatch.syspath_prepend(tmp_path)
    return f"{NAME}:THING"


def test_operator_entry_point(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"optest.operators": [("mine", package)]}
    monkeypatch.setattr(extensions, "_done", set())
    monkeypatch.setattr(extensions, "load_entry_points", lambda group: found.get(group, []))
    with pytest.raises(UsageError, match=rf"operator entry point 'mine' \({package}\) raised SyntaxError") as caught:
        extensions.load_extensions([])
    assert says(str(caught.value), "core.repair_or_uninstall_the")
    assert "importlib" not in str(caught.value)


def test_backend_entry_point(package: str) -> None:
    manager = BackendManager()
    manager.register_path("mine", package)
    with pytest.raises(UsageError, match=rf"backend 'mine' \({package}\) raised SyntaxError"):
        manager.get("mine")


def test_outdated_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "needs_a_newer_one.py").write_text("import onnx_as_it_was\nonnx_as_it_was.new_function\n")
    (tmp_path / "onnx_as_it_was.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    stated = ["onnx>=1.18; extra == 'onnx'", 'torch>=2.4; extra == "torch"', "numpy>=1.26"]
    monkeypatch.setattr(metadata, "requires", lambda _: stated)
    monkeypatch.setattr(registry, "version_of", {"onnx": "1.9.2", "torch": "2.10.0+cpu"}.get)
    with pytest.raises(UsageError) as caught:
        registry.load_extension("backend 'old'", "needs_a_newer_one:Driver")
    assert says(str(caught.value), "core.has_no_attribute_new")
    assert str(caught.value).endswith("onnx is 1.9.2, expected 1.18 or later: pip install -U onnx")
