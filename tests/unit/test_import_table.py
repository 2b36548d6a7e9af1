"""The layer table of docs/architecture.md, held against the code."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "optest"

ROWS: list[set[str]] = [
    {"errors"},
    {"spec"},
    {"registry"},
    {"guests"},
    {"settings", "numerics", "store", "process", "timing"},
    {"memory"},
    {"plan", "operators", "generators", "backends", "compare"},
    {"core"},
    {"reporting"},
    {"torch", "clib"},
    {"infiniop"},
    {"api"},
    {"cli", "pytest_plugin"},
    {"__main__"},
]
ROW_OF = {package: row for row, packages in enumerate(ROWS) for package in packages}
ROW_OF["__init__"] = len(ROWS)

REPORTING_MAY = {"errors", "spec", "registry", "store", "reporting"}
FACES_MAY = {"errors", "guests", "api", "settings", "cli", "pytest_plugin"}
THIRD_PARTY = {
    "yaml": {"plan", "clib", "torch"},
    "pydantic": {"plan", "torch"},
    "click": {"cli"},
    "pytest": {"pytest_plugin"},
    "rich": {"reporting", "cli"},
    "msgspec": {"store", "core", "reporting", "clib"},
    "torch": {"torch", "infiniop", "generators"},
    "safetensors": {"generators", "torch"},
    "ml_dtypes": {"numerics"},
    "pycparser": {"clib"},
    "subprocess": {"process"},
    "signal": {"process", "core", "spec"},
    "importlib": {"registry"},
}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return found


def own_packages(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("optest.")} & set(ROW_OF)


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    package = package_of(path)
    for other in own_packages(path) - {package}:
        assert ROW_OF[other] < ROW_OF[package], f"{package} imports {other}, but may import lower rows only"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_listeners_and_faces_see_little(path: Path) -> None:
    package = package_of(path)
    if package == "reporting":
        assert own_packages(path) <= REPORTING_MAY
    if package in ("cli", "pytest_plugin"):
        assert own_packages(path) <= FACES_MAY


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_dangerous_modules_have_one_owner(path: Path) -> None:
    package = package_of(path)
    for name in {name.split(".")[0] for name in imports(path)} & set(THIRD_PARTY):
        assert package in THIRD_PARTY[name], f"{package} imports {name}, which belongs to {THIRD_PARTY[name]}"


def test_the_vocabulary_needs_the_standard_library_alone() -> None:
    for path in [SOURCE / "errors.py", *(SOURCE / "spec").glob("*.py")]:
        outside = {name.split(".")[0] for name in imports(path)} - {"optest", "__future__", *sys.stdlib_module_names}
        assert not outside, f"{path.name} imports {outside}"


def test_only_settings_reads_the_environment() -> None:
    allowed = {SOURCE / "settings" / "variables.py"}
    for path in files():
        if path not in allowed:
            assert "os.environ" not in path.read_text(), f"{path} reads os.environ, which belongs to settings"
            assert "getenv" not in path.read_text().replace("fegetenv", ""), (
                f"{path} reads the environment, which belongs to settings"
            )


def test_no_pickle_and_no_eval() -> None:
    for path in files():
        assert not {name.split(".")[0] for name in imports(path)} & {"pickle", "marshal", "shelve"}, path
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        assert not {call.id for call in calls if isinstance(call, ast.Name)} & {"eval", "exec"}, path
