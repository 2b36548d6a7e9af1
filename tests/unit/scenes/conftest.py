"""One folder of compiled objects for all tests of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from optest.scenes.runtimes.cpp import compiler


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest.fixture
def compile_cache(objects: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiler, "_cache_folder", lambda: objects)
    return objects
