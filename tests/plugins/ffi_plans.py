"""Plans of a few calls of a C library, run as a user runs them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from optest.api.running import RunOutcome, run


def ffi_case(op: str, *shapes: Any, dtype: Any = "float32", **further: Any) -> dict[str, Any]:
    """Of a plan; ``dtype`` is that of all inputs, or a list of each one's."""
    dtypes = dtype if isinstance(dtype, list) else [dtype]
    return {"op": op, "dtypes": dtypes, "shapes": {f"input{i}": each for i, each in enumerate(shapes)}, **further}


def run_ffi_plan(folder: Path, cases: Sequence[dict[str, Any]], **config: Any) -> RunOutcome:
    """``config`` is what backend ffi is given for all cases."""
    defaults = {"timeout": 200, "backend_config": {"ffi": config}}
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "backend": "ffi", "defaults": defaults, "cases": list(cases)}))
    return run({"plan": str(file), "runs_dir": str(folder / "runs")}, stream=io.StringIO())
