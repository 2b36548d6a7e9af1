"""``optest ffi inspect`` as a user types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from texts import says
from user_shell import Shell

pytestmark = pytest.mark.cxx


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "two.h").write_text("int two(void);\nint three(float x);\n")
    (tmp_path / "two.c").write_text("int two(void) { return 2; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libtwo.so", "two.c"], cwd=tmp_path, check=True)
    return tmp_path / "libtwo.so"


def test_text_and_json(optest: Shell, library: Path) -> None:
    ended = optest("ffi", "inspect", library, "--headers", library.parent).expect(1)
    assert says(ended.out, "cli.functions_declared_can_be")
    assert "three  (two.h:2)" in ended.out
    assert says(ended.out, "cli.signatures_int_two_void")
    ended = optest("ffi", "inspect", library, "--headers", library.parent, "--json").expect(1)
    assert json.loads(ended.out)["functions"]["two"]["signature"] == "int two(void)"


def test_wrong_requests_are_refused(optest: Shell, library: Path) -> None:
    ended = optest("ffi", "inspect", library.with_name("libtow.so"), "--headers", library.parent)
    assert "Traceback" not in ended.expect(2, err="did you mean").text
    ended = optest("ffi", "inspect", library, "--headers", library.parent, "--write", "two.yaml")
    ended.expect(2, err="docs/c-libraries/mapping.md")
    assert not library.with_name("two.yaml").exists()
