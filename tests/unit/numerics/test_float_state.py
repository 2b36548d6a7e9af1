"""NumPy's error mode is kept and silenced, with NumPy's private access and without it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from optest.numerics import float_state


@pytest.fixture(params=["private", "public"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, and as it is where NumPy offers its public functions alone."""
    if request.param == "public":
        monkeypatch.setitem(sys.modules, "numpy._core.umath", ModuleType("numpy._core.umath"))
        monkeypatch.delattr(np, "geterrobj", raising=False)
    yield importlib.reload(float_state)
    monkeypatch.undo()
    importlib.reload(float_state)


def test_error_mode_is_kept_and_silenced(module: ModuleType) -> None:
    before = np.geterr()
    with module.ErrorStateKept():
        np.seterr(all="raise")
        assert np.geterr()["over"] == "raise"
    assert np.geterr() == before
    before = np.geterr()
    with np.errstate(all="raise"):
        with module.Quiet():
            assert np.isinf(np.float32(1.0) / np.float32(0.0))
        with pytest.raises(FloatingPointError):
            np.float32(1.0) / np.float32(0.0)
    assert np.geterr() == before
