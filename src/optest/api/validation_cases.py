"""Which samples are asked where no values are: every refusal, and each call once whose dtypes, shapes or attributes
make a difference to shape inference."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from optest.backends import BackendDriver
from optest.backends.abilities import CapturesPrograms, InfersShapes
from optest.spec import Sample
from optest.spec.case import GRAPH

__all__ = ["graph_samples", "selection"]

_GRAPHS = 6
"""Calls that differ in attributes, and as many that differ in dtypes: graphs hang on these more than on sizes."""


def selection(driver: BackendDriver) -> Callable[[Sample], bool]:
    """Whether a sample is asked, in the order of an operator's samples; of a driver without shape inference refusals
    alone are asked."""
    seen: set[str] = set()

    def is_asked(sample: Sample) -> bool:
        if "expects_error" in sample.case or sample.case_set == GRAPH:
            return True
        signature = json.dumps(_signature(sample.case), sort_keys=True, default=str)
        is_new = signature not in seen
        seen.add(signature)
        return is_new and isinstance(driver, InfersShapes)

    return is_asked


def graph_samples(driver: BackendDriver, own: Iterable[Sample]) -> list[Sample]:
    """The first calls of an operator of other attributes, and of other dtypes, if the driver captures programs."""
    right = [each for each in own if "expects_error" not in each.case and isinstance(driver, CapturesPrograms)]
    chosen: dict[int, Sample] = {}
    for key in ("attributes", "dtypes"):
        calls: dict[str, Sample] = {}
        for each in right:
            calls.setdefault(repr(each.case.get(key)), each)
        chosen |= {id(each): each for each in islice(calls.values(), _GRAPHS)}
    return [Sample(case_set=GRAPH, case=each.case, tier=each.tier) for each in chosen.values()]


def _signature(case: Mapping[str, Any]) -> list[Any]:
    shapes = {name: _sizes(shape) for name, shape in case.get("shapes", {}).items()}
    return [shapes, case.get("dtypes"), case.get("attributes")]


def _sizes(shape: Any) -> Any:
    """Sizes as broadcasting tells them apart: 0, 1, and more; layouts make no difference."""
    stated = shape.get("shape") if isinstance(shape, Mapping) else shape
    return [min(size, 2) if isinstance(size, int) else size for size in stated] if isinstance(stated, list) else stated
