"""Which cases of scenes ``--platform --runtime --level --manual --case`` leave, and what stands in for simpler."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says_exactly

from optest.errors import UnknownName, UsageError
from optest.plan.select import matching_ids
from optest.scenes import SceneTestCase, scene_test
from optest.scenes.cases import is_scene, selected_by_options
from optest.settings import resolve
from optest.settings.platforms import platforms_of_a_run, scene_skip_reason


class TestFoo(SceneTestCase):
    __test__ = False  # none of this module's
    CASES = ({"name": "default"}, {"name": "large", "manual": True}, {"name": "hot", "manual": "a2a3"})


class TestRing(SceneTestCase):
    __test__ = False
    CASES = ({"name": "default", "device_count": 2},)


scene_test(level=2, runtime="cpp", platforms=["a2a3sim", "a2a3"])(TestFoo)
scene_test(level=3, runtime="ring", platforms=["a2a3sim"])(TestRing)


def left(platform: str = "a2a3sim", **options: Any) -> list[str]:
    """The names of the cases that are left on a platform."""
    every = [(scene, case, platform) for scene in (TestFoo, TestRing) for case in scene._scene_cases]
    names = [f"{scene.__name__}::{case.name}" for scene, case, _ in every]
    return list(compress(names, selected_by_options(every, resolve(options))))


FOO, LARGE, HOT, RING = "TestFoo::default", "TestFoo::large", "TestFoo::hot", "TestRing::default"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, [FOO, HOT, RING]),
        ({"platform": "a2a3"}, [FOO, RING]),
        ({"manual": "include"}, [FOO, LARGE, HOT, RING]),
        ({"manual": "only"}, [LARGE]),
        ({"manual": "only", "platform": "a2a3"}, [LARGE, HOT]),
        ({"level": "2"}, [FOO, HOT]),
        ({"level": "3"}, [RING]),
        ({"runtime": "ring"}, [RING]),
        ({"runtime": "cpp", "level": "3"}, []),
        ({"case": ("default",)}, [FOO, HOT, RING]),  # what is not named is for the selection by id
    ],
)
def test_what_is_left(options: dict[str, Any], names: list[str]) -> None:
    platform = options.pop("platform", "a2a3sim")
    assert left(platform, **options) == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"case": ("large",)}, "--case 'large' matches only manual cases; add --manual include"),
        ({"case": ("TestFoo::large",)}, "matches only manual cases"),
        ({"case": ("default", "TestFoo::large")}, "--case 'TestFoo::large' matches only manual cases"),
        ({"case": ("default",), "manual": "only"}, "only cases that --runtime, --level or --manual exclude"),
        ({"case": ("TestRing::",), "level": "2"}, "only cases that --runtime, --level or --manual exclude"),
        ({"case": ("large",), "level": "3"}, "only cases that --runtime, --level or --manual exclude"),
    ],
)
def test_a_case_that_is_named_and_left_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        left(**options)


def test_unknown_runtime_lists_known_ones() -> None:
    with refusal(UnknownName, "scenes.unknown_runtime_rang_did"):
        left(runtime="rang")


@pytest.mark.parametrize(
    ("selector", "first", "second"),
    [
        ("default", True, True),
        ("TestA::default", True, False),
        ("TestA::", True, False),
        ("TestB::", False, True),
        ("TestA[cpusim]::default", True, False),
        ("TestA", False, False),
        ("Test*", True, True),
        ("Test[AC]::*", True, False),
        ("Test[!A][cpusim]::default", False, True),
        ("def????", True, True),
        ("::default", True, True),
        ("defaul", False, False),
    ],
)
def test_selectors(selector: str, first: bool, second: bool) -> None:
    ids = ["TestA[cpusim]::default", "TestB[cpusim]::default"]
    assert matching_ids(selector, ids) == {
        name for name, is_meant in zip(ids, (first, second), strict=True) if is_meant
    }


@pytest.mark.parametrize(
    ("declared", "stated", "platforms", "why"),
    [
        (["a2a3sim", "a2a3", "a5sim"], None, ["a2a3sim", "a5sim"], None),
        (["a2a3sim", "a2a3"], "a2a3sim", ["a2a3sim"], None),
        (["a2a3sim", "a2a3"], "a2a3", ["a2a3"], None),
        (["a2a3sim", "a2a3"], "a5", ["a5"], "platform is a5, but the scene supports only a2a3sim, a2a3"),
        (["a2a3"], None, [""], r"no simulation among its platforms \(a2a3\); select one with --platform"),
    ],
)
def test_platforms(declared: list[str], stated: str | None, platforms: list[str], why: str | None) -> None:
    assert platforms_of_a_run(declared, stated) == platforms
    given = [scene_skip_reason(each, declared) for each in platforms]
    assert given == [None] * len(platforms) if why is None else re.fullmatch(why, given[0] or "")


def test_subclass_without_decorator_is_no_scene() -> None:
    derived = type("Derived", (TestFoo,), {})
    assert [is_scene(each) for each in (TestFoo, derived, SceneTestCase, TestFoo(), None)] == [True, *[False] * 4]


def python(folder: Path, code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_imports_of_simpler_find_the_scenes(tmp_path: Path) -> None:
    code = (
        "import optest.scenes.compat, optest.scenes as scenes\n"
        "from simpler.task_interface import ArgDirection as D\n"
        "from simpler_setup import Scalar, SceneTestCase, TaskArgsBuilder, Tensor, scene_test\n"
        "print(D is scenes.ArgDirection, SceneTestCase is scenes.SceneTestCase, scene_test is scenes.scene_test)\n"
    )
    assert python(tmp_path, code) == "True True True\n"


def test_an_installed_simpler_is_never_shadowed(tmp_path: Path) -> None:
    (tmp_path / "simpler").mkdir()
    (tmp_path / "simpler/__init__.py").write_text("MINE = True\n")
    (tmp_path / "simpler_setup.py").write_text("MINE = True\n")
    code = (
        "import optest.scenes.compat, simpler, simpler_setup\n"
        "print(simpler.MINE, simpler_setup.MINE)\n"
        "try: import simpler.task_interface\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    assert says_exactly(python(tmp_path, code), "scenes.true_true_no_module")
