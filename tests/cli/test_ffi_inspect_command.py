"""``optest ffi inspect`` as a user types it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from user_shell import Shell

pytestmark = [
    pytest.mark.cxx,
    pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc"),
]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "two.h").write_text("int two(void);\nint three(float x);\n")
    (tmp_path / "two.c").write_text("int two(void) { return 2; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libtwo.so", "two.c"], cwd=tmp_path, check=True)
    return tmp_path / "libtwo.so"


def test_text_and_json(optest: Shell, library: Path) -> None:
    ended = optest("ffi", "inspect", library, "--headers", library.parent)
    assert ended.status == 1, ended.text
    assert "functions  2 declared, 1 can be called, 1 missing, 0 exported and declared nowhere" in ended.out
    assert "three  (two.h:2)" in ended.out
    assert "signatures\n  int two(void)" in ended.out
    ended = optest("ffi", "inspect", library, "--headers", library.parent, "--json")
    assert ended.status == 1
    assert json.loads(ended.out)["functions"]["two"]["signature"] == "int two(void)"


def test_a_library_that_is_not_there(optest: Shell, library: Path) -> None:
    ended = optest("ffi", "inspect", library.with_name("libtow.so"), "--headers", library.parent)
    assert ended.status == 2
    assert "did you mean" in ended.err
    assert "Traceback" not in ended.text


@pytest.fixture
def pointwise(tmp_path: Path) -> Path:
    """A library whose relu is right."""
    (tmp_path / "point.h").write_text("void p_relu(long n, const float *x, float *y);\nvoid p_reset(int to);\n")
    code = (
        "void p_relu(long n, const float *x, float *y) { for (long i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i]; }\n"
    )
    (tmp_path / "point.c").write_text(code + "void p_reset(int to) { (void)to; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libpoint.so", "point.c"], cwd=tmp_path, check=True)
    return tmp_path / "libpoint.so"


def test_a_mapping_to_start_from_can_be_used_as_it_is(optest: Shell, pointwise: Path) -> None:
    ended = optest("ffi", "inspect", "libpoint.so", "--headers", "point.h", "--write", "point.yaml")
    assert ended.status == 0, ended.text
    assert "point.yaml: 1 operator, nothing guessed" in ended.out
    assert "optest ffi inspect libpoint.so --headers point.h --mapping point.yaml" in ended.out
    assert sorted(path.name for path in pointwise.parent.glob("*.yaml")) == ["point.yaml"]
    ended = optest("ffi", "inspect", "libpoint.so", "--headers", "point.h", "--mapping", "point.yaml")
    assert ended.status == 0, ended.text
    assert "mapping point: 1 operators can be called\n  relu" in ended.out
    case = ("--op", "relu", "--dtype", "float32", "--shape", "input0=3x5")
    library = ("--library", "libpoint.so", "--headers", "point.h", "--mapping", "point.yaml")
    ended = optest("run", *case, "--backend", "ffi", *library)
    assert "1 passed" in ended.out, ended.text


def test_no_file_is_written_over_without_force(optest: Shell, pointwise: Path) -> None:
    mapping = pointwise.with_name("point.yaml")
    mapping.write_text("mine\n")
    asked = ("ffi", "inspect", "libpoint.so", "--headers", "point.h", "--write", "point.yaml")
    ended = optest(*asked)
    assert ended.status == 2
    assert "point.yaml is there already, and nothing was written; --force writes over it" in ended.err
    assert mapping.read_text() == "mine\n"
    ended = optest(*asked, "--force")
    assert ended.status == 0, ended.text
    assert "p_relu" in mapping.read_text()
    ended = optest(*asked, "--force", "--json")
    assert json.loads(ended.out)["functions"]
    assert "1 operator" in ended.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--write", "point"], "should be a file that ends in .yaml"),
        (["--write", "nowhere/point.yaml"], "there is no folder nowhere"),
        (["--write", "point.yaml", "--mapping", "cblas"], "--write makes a mapping, and --mapping states one"),
        (["--force"], "--force goes with --write"),
    ],
)
def test_what_cannot_be_written(optest: Shell, pointwise: Path, options: list[str], said: str) -> None:
    ended = optest("ffi", "inspect", "libpoint.so", "--headers", "point.h", *options)
    assert ended.status == 2, ended.text
    assert said in ended.err
    assert not list(pointwise.parent.glob("*.yaml"))


def test_a_library_of_which_nothing_is_recognised_writes_nothing(optest: Shell, library: Path) -> None:
    ended = optest("ffi", "inspect", library, "--headers", library.parent, "--write", "two.yaml")
    assert ended.status == 2
    assert "no function has the name and the arguments of an operator of optest; nothing was written" in ended.err
    assert not library.with_name("two.yaml").exists()
