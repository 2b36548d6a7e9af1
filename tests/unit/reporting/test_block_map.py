"""The map in the terminal's failure block: only on a terminal, and only where it says more than the words."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reporting_kit import report_run, run_info

from optest.reporting.block_map import map_lines
from optest.reporting.failure_groups import failure_block
from optest.reporting.terminal import TerminalReporter
from optest.spec import LIMIT, NO_MULTIPLE, CaseResult, Picture, Reason, Status, Verdict

Make = Callable[..., Any]
SCATTERED = "scattered over the whole tensor"


def picture_of(levels: Any, cell: tuple[int, int] = (1, 1)) -> Picture:
    rows, columns = np.shape(levels)
    packed = base64.b64encode(zlib.compress(np.asarray(levels, np.uint8).tobytes())).decode()
    return Picture(output="out", rows=rows * cell[0], columns=columns * cell[1], cell=cell, levels=packed)


def corner(wrong: int = LIMIT + 40) -> Any:
    """Wrong along the right and the lower side."""
    levels = np.full((8, 32), LIMIT)
    levels[6:], levels[:, 28:] = wrong, wrong
    return levels


@pytest.fixture
def failed(result: Make, measure: Make) -> Callable[..., CaseResult]:
    def make(levels: Any, where: str = SCATTERED, **changes: Any) -> CaseResult:
        wrong = measure(mismatched=9, worst_used=2.0, where=where)
        verdict = Verdict(
            status=Status.FAILED, reason=Reason.VALUE, measures=(wrong,), pictures=(picture_of(levels, **changes),)
        )
        return result(verdict=verdict, repro="optest run again")

    return make


def test_shades(failed: Make) -> None:
    levels = corner()
    levels[6], levels[7, :8], levels[7, 8:16] = LIMIT + 2, LIMIT + 10, LIMIT + 18
    assert map_lines(failed(levels)) == [
        "  map, one character for one element: . right, ░ up to 4 x allowed, ▒ up to 64 x allowed, "
        "▓ up to 1024 x allowed, █ more than 1024 x allowed",
        *["    " + "." * 28 + "█" * 4] * 6,
        "    " + "░" * 32,
        "    " + "▒" * 8 + "▓" * 8 + "█" * 16,
    ]


def test_large_maps_are_8_lines_of_32(failed: Make) -> None:
    head, *lines = map_lines(failed(corner(NO_MULTIPLE).repeat(8, 0).repeat(2, 1), cell=(4, 2)))
    assert "32 x 4 elements: . right, █ more" in head
    assert lines == ["    " + "." * 28 + "█" * 4] * 6 + ["    " + "█" * 32] * 2


@pytest.mark.parametrize("where", ["columns 96..99 of 100 (the last tile)", "everywhere", "element [3, 4]"])
def test_located_errors_have_no_map(failed: Make, where: str) -> None:
    assert map_lines(failed(corner(), where)) == []


def test_noise_is_no_pattern(failed: Make) -> None:
    noise = np.random.default_rng(1).choice([LIMIT - 1, LIMIT + 5], (8, 32))
    assert map_lines(failed(noise)) == []
    assert map_lines(failed(np.sort(noise, axis=1))) != []
    assert map_lines(failed(corner()[4:, 26:])) == []  # few elements


def test_only_on_a_terminal(failed: Make, terminal: Any) -> None:
    def printed(stream: Any, **options: Any) -> str:
        reporter = TerminalReporter(stream, clock=lambda: 0.0, live=False, **options)
        report_run(reporter, run_info(), [result])
        return str(stream.getvalue())

    result = failed(corner())
    assert f"    {'█' * 32}\n" in printed(terminal, color=False)
    assert "█" not in printed(io.StringIO())
    assert "█" not in failure_block(result)
    ascii_stream = io.TextIOWrapper(io.BytesIO(), "ascii", newline="\n")
    ascii_stream.getvalue = lambda: (ascii_stream.flush(), ascii_stream.buffer.getvalue().decode())[1]  # type: ignore
    assert f"    {'.' * 28}####\n" in printed(ascii_stream, color=True)
