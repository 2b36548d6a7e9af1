"""Run a model once and return the calls that it made, as the cases of a file."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from optest.torch.capture.targets import model_code, opened
from optest.torch.capture.values import tensor_entries
from optest.torch.capture.watching import Recorder, Selection, watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Entries of ``cases``, the dtype of most of their tensors, and what was seen beside them."""

    cases: Sequence[Mapping[str, Any]]
    dtype: str
    stem: str
    calls: int
    left_out: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often a function was left out, by name and reason."""

    not_selected: Mapping[str, int] = field(default_factory=dict)
    """How many calls were not selected, by reason."""


def captured(
    what: str,
    *,
    selection: Selection,
    level: str = "torch",
    seed: int = 0,
    shrink_to: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> Capture:
    """Run ``what`` and return its calls of torch.

    Raises:
        UsageError: if it cannot be found or run.
        Unavailable: if it needs a package that is not installed.
    """
    _seed(seed)
    recorder = Recorder(selection=selection)
    with opened(what, config or {}) as target:
        _seed(seed)
        with model_code(what), watched(recorder, level):
            target.run()
        stem = target.stem
    if shrink_to is not None:
        recorder.change(lambda entry: _shrunk(entry, shrink_to))
    cases = recorder.cases()
    if recorder.devices <= {"cpu", "meta"}:
        cases = [_on_device_under_test(each) for each in cases]
    counts = Counter(each["dtype"] for case in cases for each in tensor_entries(case) if each["dtype"] in _FLOATS)
    dtype = max(counts, key=counts.__getitem__) if counts else "float32"
    for tensor in (each for case in cases for each in tensor_entries(case) if each["dtype"] == dtype):
        del tensor["dtype"]  # the file states it for all
    return Capture(
        cases=cases,
        dtype=dtype,
        stem=stem,
        calls=recorder.calls,
        left_out=dict(recorder.left_out),
        not_selected=dict(recorder.not_selected),
    )


def _shrunk(entry: Mapping[str, Any], limit: int) -> tuple[dict[str, Any], list[str]]:
    """The entry with smaller sizes, and a note that says which."""
    from optest.torch.capture.shrinking import shrunk

    found, became = shrunk(entry, limit)
    sizes = ", ".join(f"{size} is {now}" for size, now in sorted(became.items()))
    return found, [f"smaller than in the model: {sizes}"] if became else []


def _seed(seed: int) -> None:
    """The model's own random numbers, so that the same model makes the same file."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


_FLOATS = ("float32", "float16", "bfloat16", "float64")


_UNDER_TEST = "cuda:0"
"""In files of cases the word for the device under test, whatever that is."""


def _on_device_under_test(case: Mapping[str, Any]) -> dict[str, Any]:
    """The case with the device that the model was on, the host for want of another, as the one under test."""
    changed = dict(case)
    if "inputs" in case:
        changed["inputs"] = [{"value": _UNDER_TEST} if each in _HOSTS else each for each in case["inputs"]]
    if "kwmap" in case:
        changed["kwmap"] = {
            name: _UNDER_TEST if {"value": value} in _HOSTS else value for name, value in case["kwmap"].items()
        }
    return changed


_HOSTS = ({"value": "cpu"}, {"value": "meta"})
