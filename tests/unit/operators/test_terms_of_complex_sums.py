"""What a sum of complex numbers may lose follows their magnitude, not their real part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optest.operators import operators
from optest.registry import load_object
from optest.spec import Terms

VALUES = np.random.default_rng(5).standard_normal((4, 256)).astype(np.float32)
CASES = [
    ("sum", {"dim": (1,)}, ()),
    ("mean", {"dim": (1,)}, ()),
    ("cumsum", {"dim": 1}, ()),
    ("scatter_add", {"dim": 0}, (np.zeros((4, 256), np.int64),)),
]


def terms(name: str, attributes: dict[str, Any], values: Any, more: tuple[Any, ...]) -> Terms:
    hook = load_object(operators.get(name).terms)
    return hook([values, *more, *([values] if more else [])], attributes)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "attributes", "more"), CASES, ids=[name for name, _, _ in CASES])
@pytest.mark.parametrize("phase", [1.0, 1j, 0.6 - 0.8j])
def test_a_turn_changes_nothing(name: str, attributes: dict[str, Any], more: tuple[Any, ...], phase: complex) -> None:
    real = terms(name, attributes, VALUES, more)
    turned = terms(name, attributes, (VALUES * phase).astype(np.complex64), more)
    assert np.array_equal(turned.count, real.count)
    assert np.allclose(turned.absolute, real.absolute, rtol=1e-6)
    assert np.allclose(turned.squared, real.squared, rtol=1e-6)
