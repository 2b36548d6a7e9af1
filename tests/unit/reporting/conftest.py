"""Results made by hand, and a terminal, as fixtures."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from reporting_kit import make_measure, make_result

from optest.spec import CaseResult, Measure


@pytest.fixture
def result() -> Callable[..., CaseResult]:
    return make_result


@pytest.fixture
def measure() -> Callable[..., Measure]:
    return make_measure


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> FakeTerminal:
    return FakeTerminal()
