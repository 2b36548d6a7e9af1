"""Compare what optest prints with the expected texts of tests/golden, one YAML file per message family.

A test names a text by its family and key, so that the wording of a message has one place. ``pytest --update-texts``
writes the present wording into the files; the difference is then reviewed like any other change.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[1] / "golden"
CHANGES = FOLDER / ".changes.jsonl"
"""Changed wordings of this run with --update-texts, one JSON line each; every pytest-xdist worker appends to it."""

updating = False
"""Whether a text that differs is recorded as the new wording."""


def says(output: str, name: str, /, **values: object) -> bool:
    """Return True if ``output`` contains the text called ``name``; raise AssertionError with both if it does not.

    ``values`` replace ``{key}`` in the stored text.
    """
    __tracebackhide__ = True
    expected = expected_text(name, values)
    if expected in output:
        return True
    if updating and (closest := closest_excerpt(expected, output)):
        record_change(name, closest, values)
        return True
    lines = difflib.get_close_matches(expected, output.splitlines(), n=3, cutoff=0.3)
    raise AssertionError(
        f"{name} is not in the output\n  expected: {expected}\n  closest:  {lines}\n  output:\n{output}"
    )


def says_exactly(output: str, name: str, /, **values: object) -> bool:
    """Return True if ``output`` is the text called ``name``; raise AssertionError with both if it is not."""
    __tracebackhide__ = True
    expected = expected_text(name, values)
    if expected == output:
        return True
    if updating:
        record_change(name, output, values)
        return True
    raise AssertionError(f"{name} differs\n  expected: {expected}\n  output:   {output}")


def lacks(output: str, name: str, /, **values: object) -> bool:
    """Return True if ``output`` does not contain the text called ``name``; raise AssertionError if it does.

    Another test has to name the text in `says`: a text that nothing prints is absent from every output.
    """
    __tracebackhide__ = True
    expected = expected_text(name, values)
    if expected not in output:
        return True
    raise AssertionError(f"{name} is in the output\n  unexpected: {expected}\n  output:\n{output}")


@contextmanager
def refusal(
    errors: type[BaseException] | tuple[type[BaseException], ...], name: str, /, **values: object
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Fail unless the block raises one of ``errors`` whose message contains the text called ``name``."""
    __tracebackhide__ = True
    with pytest.raises(errors) as caught:
        yield caught
    assert says(str(caught.value), name, **values)


@cache
def family(name: str) -> dict[str, str]:
    texts = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(texts, dict)
    return texts


def expected_text(name: str, values: dict[str, object]) -> str:
    file, _, key = name.partition(".")
    text = family(file)[key]
    for placeholder, value in values.items():
        text = text.replace(f"{{{placeholder}}}", str(value))
    return text


def closest_excerpt(expected: str, output: str) -> str | None:
    """Return the part of a line of ``output`` that is most like ``expected``, or None if no line is like it."""
    best: tuple[float, str] = (0.0, "")
    for line in output.splitlines():
        matcher = difflib.SequenceMatcher(None, expected, line, autojunk=False)
        blocks = [block for block in matcher.get_matching_blocks() if block.size > 1]
        if not blocks:
            continue
        begin = max(0, blocks[0].b - blocks[0].a)
        end = min(len(line), blocks[-1].b + blocks[-1].size + len(expected) - blocks[-1].a - blocks[-1].size)
        excerpt = line[begin:end].strip()
        best = max(best, (difflib.SequenceMatcher(None, expected, excerpt, autojunk=False).ratio(), excerpt))
    return best[1] if best[0] > 0.45 else None


def record_change(name: str, text: str, values: dict[str, object]) -> None:
    for placeholder, value in values.items():
        text = text.replace(str(value), f"{{{placeholder}}}")
    with CHANGES.open("a", encoding="utf-8") as file:
        file.write(json.dumps([name, text]) + "\n")


def apply_changes() -> list[str]:
    """Write the recorded wordings into the files of their families; return the names of the texts."""
    if not CHANGES.exists():
        return []
    changes = dict(json.loads(line) for line in CHANGES.read_text(encoding="utf-8").splitlines())
    CHANGES.unlink()
    for name, text in changes.items():
        file, _, key = name.partition(".")
        family(file)[key] = text
    for file in sorted({name.partition(".")[0] for name in changes}):
        write_family(file, family(file))
    return sorted(changes)


def write_family(name: str, texts: dict[str, str]) -> None:
    text = yaml.safe_dump(texts, allow_unicode=True, width=1000, sort_keys=True)
    (FOLDER / f"{name}.yaml").write_text(text, encoding="utf-8")


def unused_texts(tests: Path) -> list[str]:
    """Return the names of stored texts that no test in ``tests`` expects to be printed."""
    expected: set[object] = set()
    for file in tests.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "from texts import" not in text:
            continue
        tree = ast.parse(text)
        absent = {
            id(argument)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "lacks"
            for argument in call.args
        }
        constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in absent)
        expected |= {node.value for node in constants}
    names = [f"{file.stem}.{key}" for file in sorted(FOLDER.glob("*.yaml")) for key in family(file.stem)]
    return [name for name in names if name not in expected]
