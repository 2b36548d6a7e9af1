"""What a driver of one's own needs comes from one place."""

from __future__ import annotations

import optest.backends
import optest.spec


def test_numerics_are_importable_from_backends() -> None:
    assert optest.backends.Numerics is optest.spec.Numerics
    assert {"BackendDriver", "Fault", "Numerics", "Reason", "backend_manager"} <= set(optest.backends.__all__)
