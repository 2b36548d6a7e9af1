"""A package that lacks one of its own modules is broken: nothing that a user could install, and no reason to skip."""

from __future__ import annotations

from pathlib import Path

import pytest
from texts import refusal

from optest.core.border import Border
from optest.errors import Unavailable, UsageError
from optest.registry import load_extension, load_object, load_plugins
from optest.spec import Fault, Reason


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "optest_test_of_parts"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "lacks_a_part.py").write_text("from optest_test_of_parts.forgotten import rule\n")
    (folder / "lacks_another.py").write_text("import optest_test_of_parts_elsewhere.core\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder.name


def test_a_part_that_is_missing_is_no_package_to_install(package: str) -> None:
    with refusal(UsageError, "unit.needs_optest_test_of"):
        load_object(f"{package}.lacks_a_part:rule")
    with pytest.raises(Fault) as raised, Border("the reference", Reason.REFERENCE_FAILED):
        load_object(f"{package}.lacks_a_part:rule")
    assert raised.value.reason is Reason.REFERENCE_FAILED


def test_missing_module_of_optest_is_a_wrong_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "misspells_optest.py").write_text("from optest.scenes.platfroms import Platform\n")
    with refusal(UsageError, "unit.needs_optest_scenes_platfroms"):
        load_plugins(["misspells_optest"])


def test_another_package_is_one_to_install(package: str) -> None:
    with pytest.raises(Unavailable, match="pip install optest_test_of_parts_elsewhere"):
        load_object(f"{package}.lacks_another:rule")


@pytest.mark.parametrize("status", ["0", "None", "1"])
def test_module_that_exits_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """As a script that ends with ``sys.exit(main())``: nothing would have run, with exit status 0."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"exits_with_{status}"
    (tmp_path / f"{name}.py").write_text(f"import sys\ndef relu(x):\n    return x\nsys.exit({status})\n")
    for path in (name, f"{tmp_path / name}.py"):
        with pytest.raises(UsageError, match=rf"sys\.exit\({status}\) was called.*\n  at .*{name}\.py:4, in <module>"):
            load_extension("function", f"{path}:relu")
    with pytest.raises(UsageError, match=rf"plug-in '{name}' raised .*__main__"):
        load_plugins([name])


def test_a_traceback_shows_the_last_line_of_the_user_above_those_of_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "deep_library.py").write_text("def call(depth):\n    return call(depth - 1) if depth else 1 / 0\n")
    (tmp_path / "user_of_a_library.py").write_text("import deep_library\ndef run():\n    deep_library.call(9)\n")
    for folder in (library, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(Fault) as raised, Border("the backend", Reason.RAISED):
        load_object("user_of_a_library:run")()
    shown = raised.value.details["traceback_tail"]
    assert "user_of_a_library.py" in shown.splitlines()[0]
    assert shown.count("deep_library.py") == 3


def test_cause_of_an_exception_is_shown() -> None:
    """As the line of a kernel, whose exception Triton's interpreter raises again as one of its own."""

    def kernel() -> None:
        raise ValueError("the mask is a block")  # this line

    def launch() -> None:
        try:
            kernel()
        except ValueError as error:
            raise RuntimeError(repr(error)) from error

    with pytest.raises(Fault) as raised, Border("the backend", Reason.RAISED):
        launch()
    assert "# this line" in raised.value.details["traceback_tail"]
    assert raised.value.details["exception"].startswith("RuntimeError: ")


@pytest.mark.parametrize(
    ("path", "missing", "words"),
    [
        ("optest.models.commands:validate_command", "onnx", "onnx is unavailable: pip install onnx"),
        ("optest.models.commands:validate_command", "google.protobuf", "protobuf is unavailable: pip install protobuf"),
        ("drivers:Own", "a_framework", "drivers:Own is unavailable: pip install a_framework"),
    ],
)
def test_missing_package_is_named_and_no_module_of_optest(
    monkeypatch: pytest.MonkeyPatch, path: str, missing: str, words: str
) -> None:
    def import_module(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("importlib.import_module", import_module)
    with pytest.raises(Unavailable) as caught:
        load_object(path)
    assert str(caught.value) == words
