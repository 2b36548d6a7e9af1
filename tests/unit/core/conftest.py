"""Fixtures that several modules of this folder use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import core_kit
import numpy as np
import pytest

from optest.backends import BackendDriver
from optest.spec import Verdict


@pytest.fixture
def verdict_of(tmp_path: Path) -> Callable[..., Verdict]:
    """Return a function that runs an operator on given values."""

    def verdict_of(driver: BackendDriver, op: str, *values: Any, **entry: Any) -> Verdict:
        inputs = {f"input{index}": each for index, each in enumerate(values)}
        shapes = {name: list(np.shape(each)) for name, each in inputs.items()}
        data = {name: {"fill": "data", "values": each} for name, each in inputs.items()}
        return core_kit.verdict_of(driver, core_kit.planned_case(tmp_path, op, shapes=shapes, generator=data, **entry))

    return verdict_of
