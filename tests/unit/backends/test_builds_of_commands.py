"""A command finds the program that its own case asked for, whatever was built in its folder meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handmade import command_case, command_driver, inputs

from optest.backends import BackendDriver, Fault, Reason
from optest.backends.builds import Build, Builds

ADDING = ["sh", "-c", "cp kernel ran; cp {input0} {output0}"]


def run(driver: BackendDriver, place: Path, build: Any, seed: int = 0, **more: Any) -> str:
    """Return the program that the command found; the builds so far are the lines of ``log``."""
    config = {"command": ADDING, "build": build, **more}
    driver.run(command_case(config=config, base_dir=str(place), seed=seed), inputs())
    return (place / "ran").read_text().strip()


def built(place: Path) -> list[str]:
    return (place / "log").read_text().split()


def building(word: str) -> list[str]:
    return ["sh", "-c", f"echo {word} | tee -a log > kernel"]


def test_replaced_build_is_built_again(tmp_path: Path) -> None:
    asked = command_driver()
    found = [run(asked, tmp_path, building(word)) for word in ("small", "large", "small", "small")]
    assert found == ["small", "large", "small", "small"]
    assert built(tmp_path) == ["small", "large", "small"]
    run(command_driver(), tmp_path, building("small"))
    assert (tmp_path / ".optest" / ".gitignore").read_text() == "*\n"


def test_a_build_of_another_process_is_another_one(tmp_path: Path) -> None:
    one, other = command_driver(), command_driver()
    assert run(one, tmp_path, building("small")) == "small"
    assert run(other, tmp_path, building("large")) == "large"
    assert run(one, tmp_path, building("small")) == "small"
    assert run(other, tmp_path, building("small")) == "small"
    assert run(one, tmp_path, building("small")) == "small"
    assert built(tmp_path) == ["small", "large", "small", "small"]  # once for each process, and once for its loss


def test_every_step_of_a_build_is_repeated(tmp_path: Path) -> None:
    asked = command_driver()
    for word in ("small", "large", "small"):
        assert run(asked, tmp_path, [["sh", "-c", "rm -f kernel"], building(word)]) == word


def test_build_has_environment_of_plan(tmp_path: Path) -> None:
    asked = command_driver()
    build = ["sh", "-c", "echo $TILE | tee -a log > kernel"]
    assert [run(asked, tmp_path, build, env={"TILE": tile}) for tile in ("64", "128", "128")] == ["64", "128", "128"]
    assert built(tmp_path) == ["64", "128"]
    asked = command_driver()
    for seed in (1, 2):
        run(asked, tmp_path, building("small"), seed=seed, env={"SEED": "{seed}"})
    assert built(tmp_path) == ["64", "128", "small"]


def test_failed_build_is_no_build_of_others(tmp_path: Path) -> None:
    asked = command_driver()
    run(asked, tmp_path, building("small"))
    with pytest.raises(Fault) as caught:
        run(asked, tmp_path, ["sh", "-c", "echo broken > kernel; exit 1"])
    assert caught.value.reason is Reason.COMPILE
    assert run(asked, tmp_path, building("small")) == "small"


def test_slow_build_repeats_only_with_more_time(tmp_path: Path) -> None:
    builds = Builds()
    tried: list[tuple[str, ...]] = []
    build = Build(workdir=tmp_path, commands=(("make",),), env=())

    def ask(seed: int, timeout_s: float | None, answer: Fault | None) -> tuple[int, Reason | None]:
        """How often it was tried so far, and what came of it."""

        def fault_of(command: tuple[str, ...]) -> Fault | None:
            tried.append(command)
            return answer

        try:
            builds.ensure(build, command_case(base_dir=str(tmp_path), seed=seed, timeout_s=timeout_s), fault_of)
        except Fault as fault:
            return len(tried), fault.reason
        return len(tried), None

    late = Fault(Reason.DEADLINE, "make did not end within 10 s and was killed")
    assert ask(0, 10, late) == (1, Reason.DEADLINE)
    assert ask(0, 10, late) == (2, Reason.DEADLINE)  # its retry
    assert ask(1, 10, late) == (2, Reason.DEADLINE)  # another case that has no more time
    assert ask(2, None, None) == (3, None)
    assert ask(3, 10, None) == (3, None)  # it stands
