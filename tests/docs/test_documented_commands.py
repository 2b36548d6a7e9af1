"""Every command that the documentation shows is run, and every line of output that it shows is found.

A fenced block ``console`` holds ``$ command`` lines, each followed by what it prints. ``…`` stands for anything on a
line, ``...`` alone on a line for any number of lines, and a last line ``[exit status 1]`` for the status (else 0).
Lines that are shown stand in the output in that order, and without ``...`` between them right below each other.
A page's blocks run in one copy of the examples, in order; of a shell's state only ``export NAME=VALUE`` is kept.
``<!-- needs: torch -->`` before a block names components (tests/plugins/needs.py) without which it is left out;
``<!-- file: NAME -->`` before any other fenced block writes that block to a file.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import warm_python
from needs import missing

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/README.md")])
FENCE = re.compile(
    r"(?:<!-- (?P<kind>file|needs): (?P<value>.+?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S
)


@dataclass
class Step:
    """One command with the output that the page shows, or one file to write."""

    command: str = ""
    shown: list[str] = field(default_factory=list)
    status: int = 0
    file: str = ""
    content: str = ""
    needs: str = ""


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    for fence in FENCE.finditer(text):
        if fence["kind"] == "file":
            found.append(Step(file=fence["value"], content=fence["body"]))
        elif fence["language"] == "console":
            found += [
                replace(step, needs=fence["value"] or "" if fence["kind"] == "needs" else "")
                for step in commands(fence["body"])
            ]
    return found


def commands(body: str) -> list[Step]:
    found: list[Step] = []
    for line in body.splitlines():
        status = re.fullmatch(r"\[exit status (\d+)\]", line)
        if line.startswith("$ "):
            found.append(Step(command=line[2:]))
        elif found[-1].command.endswith("\\"):
            found[-1].command += "\n" + line
        elif status:
            found[-1].status = int(status[1])
        elif line.strip():
            found[-1].shown.append(line.rstrip())
    return found


def pattern_of(line: str) -> re.Pattern[str]:
    return re.compile(
        r"\s*" + ".*".join(re.escape(part.strip()) for part in line.strip().split("…")).replace(r"\ ", r"\s+") + r"\s*"
    )


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPTEST_", "TORCHINDUCTOR_"))}
    return {**kept, "PATH": path, "COLUMNS": "120", "PYTHONWARNINGS": "default"}


HEAVY = re.compile(r"docs/(backends|c-libraries|how-to)/|docs/(capture|check|opinfo|reports)\.md|examples/models/")
"""Pages that `make test` has no time for; `make heavy` runs them, and `.ci/run` twice more without components."""


def with_commands() -> list[Any]:
    pages = [page for page in PAGES if steps(page.read_text())]
    return [
        pytest.param(page, marks=pytest.mark.heavy if HEAVY.match(page.relative_to(ROOT).as_posix()) else ())
        for page in pages
    ]


PLAIN = re.compile(r"""(?:\w+=[\w,./]+ )*optest(?: (?:'[^']*'|"[\w= ]*"|[^\s'"\\$`|&;<>(){}*?~]+))*""")
"""A command of optest alone, without anything that only a shell understands."""


def ended(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    if PLAIN.fullmatch(command):
        words = shlex.split(command)
        place = words.index("optest")
        stated = dict(word.split("=", 1) for word in words[:place])
        return warm_python.run("optest", *words[place + 1 :], cwd=folder, env={**environment, **stated}, is_script=True)
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def first_missing(shown: list[str], printed: list[str]) -> str | None:
    """The first shown line that is not printed where it should be, None if all are."""
    place, gap = 0, True
    for line in (each.strip() for each in shown):
        if line == "...":
            gap = True
            continue
        pattern = pattern_of(line)
        places = range(place, len(printed) if gap else min(place + 1, len(printed)))
        found = next((index for index in places if pattern.fullmatch(printed[index])), None)
        if found is None:
            return line
        place, gap = found + 1, False
    return None


@pytest.mark.slow
@pytest.mark.parametrize("page", with_commands(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    copy = tmp_path / "repository"
    shutil.copytree(ROOT / "examples", copy / "examples", ignore=shutil.ignore_patterns("build", "__pycache__"))
    left_out, environment = [], dict(environment)
    for step in steps(page.read_text()):
        if step.file:
            (copy / step.file).parent.mkdir(parents=True, exist_ok=True)
            (copy / step.file).write_text(step.content)
            continue
        if reason := missing(step.needs):
            left_out.append(reason)
            continue
        if exported := re.fullmatch(r"export (\w+)=(\S*)", step.command):
            environment[exported[1]] = exported[2]
            continue
        done = ended(step.command, copy, environment)
        output = done.stdout + done.stderr
        where = f"{page.relative_to(ROOT)}: $ {step.command}\n{output}"
        assert done.returncode == step.status, f"status {done.returncode}, expected {step.status}\n{where}"
        absent = first_missing(step.shown, [line for line in output.splitlines() if line.strip()])
        assert absent is None, f"not printed here: {absent}\n{where}"
    if left_out:
        pytest.skip(f"{left_out[0]}; {len(left_out)} commands were left out, the others are right")


def test_shown_lines_are_matched_in_order() -> None:
    printed = ["a", "b", "c"]
    assert first_missing(["a", "b"], printed) is None
    assert first_missing(["b"], printed) is None
    assert first_missing(["a", "...", "c", "..."], printed) is None
    assert first_missing(["a", "c"], printed) == "c"
    assert first_missing(["b", "a"], printed) == "a"
    assert first_missing(["a", "...", "a"], printed) == "a"


def test_the_reader_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_COMPONENTS", raising=False)
    (write, run) = steps(
        "<!-- file: a.txt -->\n```yaml\nx: 1\n```\n\n```console\n$ cat a.txt\nx: …\n[exit status 1]\n```\n"
    )
    assert (write.file, write.content) == ("a.txt", "x: 1\n")
    assert (run.command, run.shown, run.status) == ("cat a.txt", ["x: …"], 1)
    (torch,) = steps("<!-- needs: torch -->\n```console\n$ true\n```\n")
    assert (torch.needs, write.needs) == ("torch", "")
    assert not missing("bash pytest")
    assert missing("bash no-such-program") == "needs no-such-program: apt-get install no-such-program"
    assert "apt-get" not in missing("triton")
    assert pattern_of("x: …").fullmatch("  x: 1")
    assert not pattern_of("x: …").fullmatch("y: 1")
