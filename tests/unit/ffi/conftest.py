"""Tiny C libraries, built by gcc once for each text."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

BuildLibrary = Callable[..., Path]


@pytest.fixture(scope="session")
def build_library(tmp_path_factory: pytest.TempPathFactory) -> BuildLibrary:
    """``build_library(text, name="libtiny.so", folder=None)`` gives the path of the shared object."""

    def build(text: str, *, name: str = "libtiny.so", folder: Path | None = None, flags: tuple[str, ...] = ()) -> Path:
        folder = folder or tmp_path_factory.mktemp("c")
        folder.mkdir(parents=True, exist_ok=True)
        source, target = folder / f"{name}.c", folder / name
        source.write_text(text)
        command = ["gcc", "-O1", "-shared", "-fPIC", *flags, str(source), "-o", str(target), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        return target

    return build
