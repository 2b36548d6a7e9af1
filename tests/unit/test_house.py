"""The budgets of the source: a worse figure fails, a better one is stored, and each counted thing is listed."""

from __future__ import annotations

import sys
from pathlib import Path

import house
import pytest
from house import BudgetFile, Figure

BUDGETS = """\
# Kept.
files: {most: 10, goal: 5}  # raised for a reason
comments: {least: 1.5}
processor time of make test, in calibration loops: {most: 100}
"""


@pytest.fixture
def budgets(tmp_path: Path) -> BudgetFile:
    (tmp_path / "budgets.yaml").write_text(BUDGETS)
    return BudgetFile(tmp_path / "budgets.yaml")


def write_source(root: Path, texts: dict[str, str]) -> None:
    """Write modules of a package ``optest``."""
    for name, text in {"__init__": "", **texts}.items():
        file = root / "src" / "optest" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_a_worse_figure_fails(budgets: BudgetFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.check(budgets, [Figure("files", 11, "merge some"), Figure("comments", 1.4, "say why")]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "over budget: files: now 11, at most 10; merge some",
        "over budget: comments: now 1.4, at least 1.5; say why",
    ]
    assert budgets.path.read_text() == BUDGETS


def test_a_better_figure_is_stored(budgets: BudgetFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.check(budgets, [Figure("files", 8, ""), Figure("comments", 1.7, "")]) == 0
    assert "files: 10 → 8, stored in budgets.yaml" in capsys.readouterr().out
    stored = BUDGETS.replace("{most: 10,", "{most: 8,").replace("{least: 1.5}", "{least: 1.7}")
    assert budgets.path.read_text() == stored


def test_a_margin_neither_fails_nor_stores(budgets: BudgetFile) -> None:
    for now, status in ((9, 0), (11, 0), (12, 1)):
        assert house.check(budgets, [Figure("files", now, "", margin=0.1), Figure("comments", 1.5, "")]) == status
    assert budgets.path.read_text() == BUDGETS


def test_figures_and_budgets_must_match(budgets: BudgetFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.check(budgets, [Figure("files", 10, ""), Figure("circles", 2, "")]) == 1
    errors = capsys.readouterr().err
    assert "circles: now 2, without a budget" in errors
    assert "comments: a budget in budgets.yaml of no figure" in errors


def test_a_missing_component_is_printed(budgets: BudgetFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.check(budgets, [Figure("files", None, "", "torch is missing"), Figure("comments", 1.5, "")]) == 0
    assert "files: not counted, torch is missing" in capsys.readouterr().out


def test_words_are_listed_with_lines(tmp_path: Path) -> None:
    text = (
        '"""Read files."""\n\nHELP = "Say more."\nERROR = f"{HELP} is what the ``told`` backend needs"\nKEY = "asked"\n'
    )
    write_source(tmp_path, {"a": text, "b": '"""Compare beside."""\n'})
    assert list(house.word_lines(tmp_path, [str(tmp_path / "src" / "optest" / "a.py")])) == [
        "src/optest/a.py:3: Say → report, print: Say more.",
        "src/optest/a.py:4: what → the noun: the value, the caller, the backend: {} is what the ``told`` backend needs",
    ]


def test_circles_pass_packages(tmp_path: Path) -> None:
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from optest.b import B\n"
    texts = {
        "a": lazy + "class A: ...\n",
        "b": "class B:\n    def a(self):\n        from optest.p import A\n        return A()\n",
        "p/__init__": "from optest.a import A\nfrom optest.p.c import C\n__all__ = ['A', 'C']\n",
        "p/c": "from optest.p import A\nclass C(A): ...\n",
    }
    write_source(tmp_path, texts)
    assert list(house.listed("circles", tmp_path)) == ["optest.a, optest.b"]


def test_short_functions_and_names(tmp_path: Path) -> None:
    long = "def _long(x):\n" + "    x += 1\n" * 7 + "_long(1)\n"
    texts = {"a": f"def _f(): ...\n_f()\ndef _g(): ...\n_g(_g())\n{long}", "b": "def _g(): ...\n"}
    write_source(tmp_path, texts)
    assert list(house.listed("short", tmp_path)) == ["src/optest/a.py:1 _f"]
    assert list(house.listed("names", tmp_path)) == ["_g: src/optest/a.py, src/optest/b.py"]


def test_docstrings_begin_with_a_verb(tmp_path: Path) -> None:
    firsts = ["Return it.", "Returns it.", "Whether it is.", "``x`` as text.", "Rows.", "Shape of it.", "Focus."]
    functions = [f'def f{i}():\n    """{first}"""\n' for i, first in enumerate(firsts)]
    functions.append('class C:\n    @property\n    def p(self):\n        """Rows."""\n')
    write_source(tmp_path, {"a": "".join(functions)})
    lines = [line.split(":")[1] for line in house.listed("docstrings", tmp_path)]
    assert lines == ["4", "6", "8", "10", "12"]


@pytest.mark.parametrize(("loop", "program", "status"), [(1e3, "", 0), (1e-6, "", 1), (1e-6, "raise SystemExit(7)", 7)])
def test_run_holds_processor_time(
    budgets: BudgetFile, monkeypatch: pytest.MonkeyPatch, loop: float, program: str, status: int
) -> None:
    monkeypatch.setattr(house, "calibrate", lambda: loop)
    assert house.run_within_budget(budgets, [sys.executable, "-c", program]) == status
