"""Which tests run on which platform: the tables of the seed; and lists of devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from texts import refusal, says_exactly
from user_shell import Ended

from optest.errors import UsageError
from optest.settings.platforms import PLATFORMS, device_ids, is_device, parse_devices, why_skipped

TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.requires_hardware
def test_any(): pass

@pytest.mark.requires_hardware("a2a3")
def test_one(): pass

@pytest.mark.requires_hardware("a5")
class TestOther:
    def test_of_class(self): pass

    @pytest.mark.requires_hardware("a2a3")
    def test_nearest(self): pass
"""


def run(folder: Path, *words: str, ini: str = "") -> Ended:
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = -p optest.pytest_plugin --strict-markers\n{ini}")
    (folder / "test_hardware.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def test_what_is_hardware() -> None:
    known = {name: PLATFORMS.get(name).is_device for name in PLATFORMS}  # among them those that other tests add
    assert known.items() >= {"cuda": True, "opencl": True, "a2a3": True, "a5": True}.items()
    assert known.items() >= dict.fromkeys(("cpusim", "oclsim", "tritonsim", "a2a3sim", "a5sim"), False).items()
    assert not is_device(None)


@pytest.mark.parametrize("platform", [None, "a2a3sim", "a5sim", "cpusim"])
def test_without_hardware(platform: str | None) -> None:
    reasons = [why_skipped(mark, platform) for mark in (None, (), ("a2a3",))]
    assert reasons == [None, "requires hardware", "requires --platform a2a3"]


def test_with_hardware() -> None:
    for platform in ("a2a3", "a5"):
        assert says_exactly(why_skipped(None, platform), "pytest_plugin.no_hardware_test_runs")
        assert why_skipped((), platform) is None
        for named in ("a2a3", "a5"):
            expected = None if named == platform else f"requires --platform {named}"
            assert why_skipped((named,), platform) == expected


@pytest.mark.parametrize("arguments", [("a2a3", "a5"), ("a2a3sim",), (3,)])
def test_a_mark_names_one_hardware(arguments: tuple[str, ...]) -> None:
    with refusal(UsageError, "pytest_plugin.should_name_one_platform"):
        why_skipped(arguments, "a2a3")


@pytest.mark.parametrize(
    ("platform", "runs"),
    [
        ([], {"test_plain"}),
        pytest.param(["--platform", "a2a3sim"], {"test_plain"}, marks=pytest.mark.heavy),
        (["--platform", "a2a3"], {"test_any", "test_one", "test_nearest"}),
        pytest.param(["--platform", "a5"], {"test_any", "test_of_class"}, marks=pytest.mark.heavy),
    ],
)
def test_the_command(tmp_path: Path, platform: list[str], runs: set[str]) -> None:
    ended = run(tmp_path, *platform).expect(0)
    assert {line.split()[0].rpartition("::")[2] for line in ended.out.splitlines() if " PASSED" in line} == runs
    assert f"{len(runs)} passed, {5 - len(runs)} skipped" in ended.out


@pytest.mark.heavy
def test_a_platform_that_nobody_knows(tmp_path: Path) -> None:
    run(tmp_path, "--platform", "a2a33").expect(4, err="did you mean a2a3")
    assert "5 skipped" not in run(tmp_path, "--platform", "lab_npu", ini="optest_platforms = lab_npu\n").out


def test_device_lists() -> None:
    texts = ("0", "0-7", "0,2,5", "0-3,6", " 8 - 9 , 3")
    assert [*map(parse_devices, texts)] == [(0,), tuple(range(8)), (0, 2, 5), (0, 1, 2, 3, 6), (8, 9, 3)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("4-2", "the range 4-2 counts down"),
        ("x", "'x' is neither an id"),
        ("-1", "'-1' is neither an id"),
        ("1,", "'' is neither an id"),
        ("1-2-3", "'1-2-3' is neither an id"),
        ("٣", "is neither an id"),
        ("0,2,0", "0 occurs twice"),
        ("0-3,3", "3 occurs twice"),
        ("", "it is empty"),
        ("0-99999999999", "more than 4096"),
    ],
)
def test_wrong_device_lists(text: str, why: str) -> None:
    with pytest.raises(UsageError, match="--device is '") as raised:
        parse_devices(text)
    assert why in str(raised.value)


def test_device_range_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEVICE_RANGE", raising=False)
    assert device_ids(None) == (0,)
    monkeypatch.setenv("DEVICE_RANGE", "4-7")
    assert device_ids(None) == (4, 5, 6, 7)
    assert device_ids("1") == (1,)
    monkeypatch.setenv("DEVICE_RANGE", "")
    with pytest.raises(UsageError, match="DEVICE_RANGE is ''"):
        device_ids(None)
