"""Objects of C++ sources: made once for the same text, headers, flags and compiler, and errors with their lines."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from texts import refusal

from optest.errors import Unavailable
from optest.scenes.runtimes import lack_of_runtime
from optest.scenes.runtimes.cpp import compiler
from optest.scenes.runtimes.cpp.compiler import compile_source
from optest.spec import Fault, Reason

pytestmark = [pytest.mark.cxx, pytest.mark.usefixtures("compile_cache")]

cache_folder = compiler._cache_folder.__wrapped__
KERNEL = '#include "scale.h"\nextern "C" int scaled(int x) { return kScale * x; }\n'


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a compiler that is a new one to the cache, a line each."""
    log, script = tmp_path / "calls", tmp_path / "logged_gxx"
    log.touch()
    script.write_text(f'#!/bin/sh\ncase "$1" in --version) echo {tmp_path};; *) echo >> {log};; esac\nexec g++ "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return log


def written(folder: Path, text: str = KERNEL, scale: int = 2) -> Path:
    (folder / "scale.h").write_text(f"constexpr int kScale = {scale};\n")
    (folder / "kernel.cpp").write_text(text)
    return folder / "kernel.cpp"


def count(calls: Path) -> int:
    return len(calls.read_text().splitlines())


@pytest.mark.parametrize(
    ("folder", "change", "compilations"),
    [
        (".", {}, 1),
        (".", {"text": KERNEL.replace("* x", "+ x")}, 2),
        (".", {"scale": 3}, 3),  # the entry of a text has the headers of its last compilation
        ("a b", {"scale": 3}, 3),
    ],
)
def test_changed_text_or_header_is_another_object(
    tmp_path: Path, calls: Path, folder: str, change: dict[str, Any], compilations: int
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    first = compile_source(written(tmp_path / folder), ())
    assert (compile_source(written(tmp_path / folder, **change), ()) != first) is bool(change)
    assert compile_source(written(tmp_path / folder), ()) == first
    assert first.is_file()
    assert count(calls) == compilations


def test_rebuild_compiles_again(tmp_path: Path, calls: Path) -> None:
    source = written(tmp_path)
    assert compile_source(source, (), rebuild=True) == compile_source(source, (), rebuild=True)
    assert count(calls) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"object": "gone.so"}', '{"object": "gone.so", "headers": {}}'])
def test_a_torn_entry_is_made_again(tmp_path: Path, calls: Path, compile_cache: Path, content: str) -> None:
    source, before = written(tmp_path), {*compile_cache.glob("*.json")}
    first = compile_source(source, ())
    (manifest,) = {*compile_cache.glob("*.json")} - before
    manifest.write_text(content)
    assert compile_source(source, ()) == first
    assert count(calls) == 2


def test_an_object_that_is_gone_is_made_again(tmp_path: Path, calls: Path) -> None:
    source = written(tmp_path)
    compile_source(source, ()).unlink()
    assert compile_source(source, ()).is_file()
    assert count(calls) == 2


def test_several_at_once_get_the_same(tmp_path: Path, calls: Path, compile_cache: Path) -> None:
    source, before = written(tmp_path), {*compile_cache.iterdir()}
    with ThreadPoolExecutor(4) as pool:
        made = {*pool.map(lambda _: compile_source(source, ()), range(4))}
    assert len(made) == 1
    assert {each.suffix for each in {*compile_cache.iterdir()} - before} == {".so", ".json"}
    assert count(calls) == 1


def test_compile_errors_have_their_line(tmp_path: Path) -> None:
    said = r"(?s)kernel.cpp does not compile:\n.*kernel.cpp:2:\d+: error: .*kNothing"
    with pytest.raises(Fault, match=said) as caught:
        compile_source(written(tmp_path, KERNEL.replace("kScale", "kNothing")), ())
    assert caught.value.reason is Reason.COMPILE
    assert "kNothing * x" in str(caught.value), "the line itself"


def test_link_errors_have_their_line(tmp_path: Path) -> None:
    text = 'int nowhere(int);\nextern "C" int f(int x) { return nowhere(x); }\n'
    with refusal(Fault, "scenes.kernel_cpp_undefined_reference") as caught:
        compile_source(written(tmp_path, text), ())
    assert caught.value.reason is Reason.COMPILE


def test_a_failed_compilation_leaves_nothing(tmp_path: Path, compile_cache: Path) -> None:
    before = {*compile_cache.iterdir()}
    with pytest.raises(Fault):
        compile_source(written(tmp_path, "int"), ())
    assert {*compile_cache.iterdir()} == before


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with refusal(Fault, "scenes.gone_cpp_is_not") as caught:
        compile_source(tmp_path / "gone.cpp", ())
    assert caught.value.reason is Reason.BAD_CASE


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with refusal(Unavailable, "scenes.compiler_no_such_compiler"):
        compile_source(written(tmp_path), ())
    assert "no-such-compiler" in str(lack_of_runtime("cpp", "cpusim"))


def test_unwritable_cache_folder_has_substitute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the place of the folder keeps also root from writing there."""
    substitute = tmp_path / "temporary"
    substitute.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(substitute))
    assert cache_folder() == tmp_path / ".optest" / "cache" / "scenes"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".optest").touch()
    monkeypatch.chdir(tmp_path / "other")
    assert cache_folder().parent == substitute
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(Unavailable, match=r"make .* writable"):
        cache_folder()
