"""The layer table of docs/architecture.md, held against the code."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
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
    {"torch", "clib", "jax", "onnx", "cluster"},
    {"infiniop", "suites", "scenes", "models", "testing"},
    {"api"},
    {"cli", "pytest_plugin"},
    {"__main__"},
]
ROW_OF = {package: row for row, packages in enumerate(ROWS) for package in packages}
ROW_OF["__init__"] = len(ROWS)

REPORTING_MAY = {"errors", "spec", "registry", "store", "reporting"}
FACES_MAY = {"errors", "guests", "api", "settings", "suites", "cli", "pytest_plugin"}
THIRD_PARTY = {
    "tomli": {"settings"},
    "yaml": {"plan", "clib", "torch"},
    "pydantic": {"plan", "torch", "models"},
    "click": {"cli"},
    "pytest": {"pytest_plugin"},
    "rich": {"reporting", "cli"},
    "msgspec": {"store", "core", "reporting", "clib"},
    "torch": {"torch", "infiniop", "generators"},
    "jax": {"jax"},
    "safetensors": {"generators", "torch", "scenes", "models"},
    "pyopencl": {"backends"},
    "onnx": {"onnx"},
    "google": {"onnx"},
    "onnxruntime": {"onnx"},
    "openvino": {"onnx"},
    "ml_dtypes": {"numerics"},
    "pycparser": {"clib"},
    "subprocess": {"process"},
    "signal": {"process", "core", "spec"},
    "importlib": {"registry"},
    "filelock": {"core"},
    "ray": {"cluster"},
    "jinja2": {"reporting"},
}


FILES = sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return found


def own_packages(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("optest.")} & set(ROW_OF)


def own_imports() -> list[tuple[str, str, Path]]:
    """Of each file: its package, and another one that it imports."""
    return [(package_of(path), other, path) for path in FILES for other in own_packages(path) - {package_of(path)}]


def test_imports_go_down_only() -> None:
    assert len(own_imports()) > len(FILES) // 2
    assert not [each for each in own_imports() if ROW_OF[each[1]] >= ROW_OF[each[0]]]


def test_listeners_and_faces_see_little() -> None:
    may = {"reporting": REPORTING_MAY, "cli": FACES_MAY, "pytest_plugin": FACES_MAY}
    assert not [each for each in own_imports() if each[1] not in may.get(each[0], ROW_OF)]


def test_dangerous_modules_have_one_owner() -> None:
    dangerous = [
        (package_of(path), name, path)
        for path in FILES
        for name in {name.split(".")[0] for name in imports(path)} & set(THIRD_PARTY)
    ]
    assert not [each for each in dangerous if each[0] not in THIRD_PARTY[each[1]]]


def test_the_vocabulary_needs_the_standard_library_alone() -> None:
    for path in [SOURCE / "errors.py", *(SOURCE / "spec").glob("*.py")]:
        outside = {name.split(".")[0] for name in imports(path)} - {"optest", "__future__", *sys.stdlib_module_names}
        assert not outside, f"{path.name} imports {outside}"


def test_only_settings_reads_the_environment() -> None:
    allowed = {SOURCE / "settings" / "variables.py"}
    for path in FILES:
        if path not in allowed:
            assert "os.environ" not in path.read_text(), f"{path} reads os.environ, which belongs to settings"
            assert "getenv" not in path.read_text().replace("fegetenv", ""), (
                f"{path} reads the environment, which belongs to settings"
            )


def test_no_pickle_and_no_eval() -> None:
    for path in FILES:
        assert not {name.split(".")[0] for name in imports(path)} & {"pickle", "marshal", "shelve"}, path
        calls = (node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call))
        assert not {call.id for call in calls if isinstance(call, ast.Name)} & {"eval", "exec"}, path


def test_every_extra_is_imported_by_somebody() -> None:
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    extras = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "registry.py")
    names = {re.split(r"[><=;\[]", each)[0] for needs in extras.values() for each in needs}
    names -= {"expecttest", "triton"}  # which torch's OpInfo and a user's kernels import
    assert "jinja2" in names
    assert names == {each for each in names if re.search(rf'(?m)^\s*(import|from) {each}\b|"{each}[".:]', source)}
