"""Which samples are asked where no values are: every refusal, and each call once whose dtypes, shapes or attributes
make a difference to shape inference."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from optest.backends import BackendDriver
from optest.backends.abilities import InfersShapes
from optest.spec import Sample

__all__ = ["selection"]


def selection(driver: BackendDriver) -> Callable[[Sample], bool]:
    """Whether a sample is asked, in the order of an operator's samples; of a driver without shape inference refusals
    alone are asked."""
    seen: set[str] = set()

    def is_asked(sample: Sample) -> bool:
        if "expects_error" in sample.case:
            return True
        signature = json.dumps(_signature(sample.case), sort_keys=True, default=str)
        is_new = signature not in seen
        seen.add(signature)
        return is_new and isinstance(driver, InfersShapes)

    return is_asked


def _signature(case: Mapping[str, Any]) -> list[Any]:
    shapes = {name: _sizes(shape) for name, shape in case.get("shapes", {}).items()}
    return [shapes, case.get("dtypes"), case.get("attributes")]


def _sizes(shape: Any) -> Any:
    """Sizes as broadcasting tells them apart: 0, 1, and more; layouts make no difference."""
    stated = shape.get("shape") if isinstance(shape, Mapping) else shape
    return [min(size, 2) if isinstance(size, int) else size for size in stated] if isinstance(stated, list) else stated
