"""Run a model once and return its torch calls as model cases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from optest.torch.capture.targets import open_target, user_code_errors
from optest.torch.capture.values import tensor_entries
from optest.torch.capture.watching import Recorder, Selection, record_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Captured cases and the counts of calls that became none.

    ``dtype`` is that of most tensors and is omitted from the cases. ``left_out`` counts calls by function and reason,
    ``not_selected`` by reason.
    """

    cases: Sequence[Mapping[str, Any]]
    dtype: str
    stem: str
    calls: int
    left_out: Mapping[tuple[str, str], int] = field(default_factory=dict)
    not_selected: Mapping[str, int] = field(default_factory=dict)


def capture_model(
    what: str,
    *,
    selection: Selection,
    level: str = "torch",
    seed: int = 0,
    shrink_to: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> Capture:
    """Run the target ``what`` once and return its torch calls as cases, with sizes of at most ``shrink_to``.

    Raises:
        UsageError: if it cannot be found or run.
        Unavailable: if it needs a package that is not installed.
    """
    _seed(seed)  # for random numbers that the target draws while it loads
    recorder = Recorder(selection=selection)
    with open_target(what, config or {}) as target:
        _seed(seed)
        with user_code_errors(what), record_calls(recorder, level):
            target.run()
        stem = target.stem
    if shrink_to is not None:
        recorder.change(lambda entry: _shrunk(entry, shrink_to))
    cases = recorder.cases()
    if recorder.devices <= {"cpu", "meta"}:
        cases = [_on_device_under_test(case) for case in cases]
    tensors = [tensor for case in cases for tensor in tensor_entries(case)]
    counts = Counter(tensor["dtype"] for tensor in tensors if tensor["dtype"] in _FLOATS)
    dtype = max(counts, key=counts.__getitem__) if counts else "float32"
    for tensor in tensors:
        if tensor["dtype"] == dtype:
            del tensor["dtype"]  # the file's defaults declare it
    return Capture(
        cases=cases,
        dtype=dtype,
        stem=stem,
        calls=recorder.calls,
        left_out=dict(recorder.left_out),
        not_selected=dict(recorder.not_selected),
    )


def _shrunk(entry: Mapping[str, Any], limit: int) -> tuple[dict[str, Any], list[str]]:
    """Return the entry with smaller sizes and a note that lists the changes; no note without a change."""
    from optest.torch.capture.shrinking import shrink_entry

    smaller, became = shrink_entry(entry, limit)
    sizes = ", ".join(f"{size} is {new}" for size, new in sorted(became.items()))
    return smaller, [f"smaller than in the model: {sizes}"] if became else []


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


_FLOATS = ("float32", "float16", "bfloat16", "float64")


_HOSTS = ({"value": "cpu"}, {"value": "meta"})
# The files' name for the device under test, of whatever kind.
_UNDER_TEST = "cuda:0"


def _on_device_under_test(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case with every argument "cpu" or "meta" replaced by "cuda:0"."""
    changed = dict(case)
    if "inputs" in case:
        changed["inputs"] = [{"value": _UNDER_TEST} if entry in _HOSTS else entry for entry in case["inputs"]]
    if "kwmap" in case:
        changed["kwmap"] = {
            name: _UNDER_TEST if {"value": value} in _HOSTS else value for name, value in case["kwmap"].items()
        }
    return changed
