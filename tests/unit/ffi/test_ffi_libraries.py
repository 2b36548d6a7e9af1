"""Shared objects used as one library; every kind of missing library has its own message."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
from texts import refusal, says

from optest.clib.ffi.libraries import exported_names, file_name, find_library, open_library, unfit_reason
from optest.errors import Unavailable
from optest.settings import infini_root

pytestmark = [pytest.mark.cxx, pytest.mark.skipif(sys.platform != "linux", reason="file names of Linux")]

FIRST = "int shared_name(void) { return 1; } int only_first(void) { return 10; }"
SECOND = "int shared_name(void) { return 2; } int only_second(void) { return 20; }"
MACHINE_OFFSET = 18
AARCH64 = 183


@pytest.fixture
def root(build_library, tmp_path: Path) -> Path:
    build_library(FIRST, name="libfirst.so", folder=tmp_path / "lib")
    build_library(SECOND, name="libsecond.so", folder=tmp_path / "lib64")
    return tmp_path


def test_first_of_two_objects_wins(root: Path) -> None:
    library = open_library(["first", "second"], root=root)
    assert library.symbol("shared_name")() == 1
    assert library.symbol("only_second")() == 20
    assert open_library(["second", "first"], root=root).symbol("shared_name")() == 2
    assert library.missing(["only_first", "nothing", "only_second"]) == ("nothing",)
    assert not library.has("nothing")


def test_root_comes_from_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINI_ROOT", str(root))
    assert find_library("first") == str(root / "lib" / "libfirst.so")
    assert infini_root({}) == Path.home() / ".infini"
    assert infini_root({"INFINI_ROOT": " "}) == Path.home() / ".infini"


def test_explicit_root_excludes_system_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_library("libm.so.6") == "libm.so.6"
    loaded: list[str] = []
    monkeypatch.setenv("INFINI_ROOT", str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    assert find_library("m") == "libm.so"
    assert loaded == ["libm.so"]
    with pytest.raises(Unavailable, match=r"library m is unavailable: not found at .*/lib/libm\.so"):
        find_library("m", root=tmp_path)
    assert loaded == ["libm.so"]


def test_missing_library_lists_searched_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINI_ROOT", str(tmp_path))
    with pytest.raises(Unavailable) as raised:
        open_library("nowhere")
    for place in (tmp_path / "lib" / "libnowhere.so", tmp_path / "lib64" / "libnowhere.so", tmp_path / "libnowhere.so"):
        assert str(place) in str(raised.value)
    assert "INFINI_ROOT" in str(raised.value)


def test_path_is_literal_and_suggests_neighbour(root: Path) -> None:
    assert open_library(root / "lib" / "libfirst.so").symbol("only_first")() == 10
    with pytest.raises(Unavailable, match=r"no such file; did you mean .*libfirst\.so"):
        open_library(root / "lib" / "libfrist.so")
    with pytest.raises(Unavailable, match="it is a folder"):
        open_library(root / "lib")


def test_missing_symbol_suggests_the_nearest(root: Path) -> None:
    library = open_library(["first", "second"], root=root)
    with pytest.raises(Unavailable) as raised:
        library.symbol("only_secnod")
    message = str(raised.value)
    assert message.startswith("symbol only_secnod is unavailable: ")
    assert "libfirst.so" in message
    assert says(message, "ffi.libsecond_so_do_not")


def test_unfit_file_is_reported(root: Path) -> None:
    other = bytearray((root / "lib" / "libfirst.so").read_bytes())
    other[MACHINE_OFFSET : MACHINE_OFFSET + 2] = AARCH64.to_bytes(2, sys.byteorder)
    script = b"/* GNU ld script */ INPUT(libm.so.6)"
    for content, text in ((other, "ffi.it_is_for_aarch"), (script, "ffi.it_is_no_elf"), (b"", "ffi.it_is_no_elf")):
        (root / "lib" / "libunfit.so").write_bytes(content)
        with refusal(Unavailable, text):
            open_library("unfit", root=root)


def test_unresolved_dependency_has_loader_message(build_library, root: Path) -> None:
    flags = ("-L", str(root / "lib"), "-Wl,--no-as-needed", "-lfirst")
    source = "int only_first(void); int f(void) { return only_first(); }"
    build_library(source, name="libneeds.so", folder=root / "lib", flags=flags)
    (root / "lib" / "libfirst.so").unlink()
    with refusal(Unavailable, "ffi.the_loader_says_libfirst"):
        open_library("needs", root=root)


def test_last_library_is_loaded_first(build_library, tmp_path: Path) -> None:
    """An operator library finds its runtime, which the loader would not find, because it is there already."""
    source, flags = "int only_rt(void) { return 7; }", ("-Wl,-soname,librt7.so",)
    runtime = build_library(source, name="librt7.so", folder=tmp_path, flags=flags)
    source, flags = "int only_rt(void); int op(void) { return only_rt(); }", ("-Wl,--no-as-needed", str(runtime))
    build_library(source, name="libop7.so", folder=tmp_path, flags=flags)
    assert open_library(["op7", "rt7"], root=tmp_path).symbol("op")() == 7


def test_symbols_do_not_share_their_signatures(root: Path) -> None:
    library = open_library("first", root=root)
    library.symbol("only_first").restype = ctypes.c_double
    assert library.symbol("only_first").restype is ctypes.c_int


def test_elf_file_lists_exports(root: Path) -> None:
    path = root / "lib" / "libfirst.so"
    assert unfit_reason(str(path)) == ""
    assert {"shared_name", "only_first"} <= exported_names(str(path))
    assert not exported_names(str(root / "gone"))
    (root / "cut").write_bytes(path.read_bytes()[:200])
    assert not exported_names(str(root / "cut"))


def test_file_names_follow_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_name("infiniop") == "libinfiniop.so"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert file_name("infiniop") == "libinfiniop.dylib"
    monkeypatch.setattr(sys, "platform", "win32")
    assert file_name("infiniop") == "infiniop.dll"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "infiniop.dll").touch()
    assert find_library("infiniop", root=tmp_path) == str(tmp_path / "bin" / "infiniop.dll")


def test_nothing_is_loaded_at_import(tmp_path: Path) -> None:
    program = (
        "import ctypes\n"
        "def refuse(*a, **k): raise AssertionError('loaded at import')\n"
        "import numpy, optest.numerics, optest.process\n"
        "ctypes.CDLL = refuse\n"
        "import optest.clib.ffi, optest.clib.ffi.libraries, optest.clib.ffi.headers, optest.clib.ffi.signatures\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
