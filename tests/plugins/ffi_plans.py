"""Plans of a few calls of a C library, run as a user runs them; libraries of one function."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from optest.api.running import Report, run


def ffi_case(op: str, *shapes: Any, dtype: Any = "float32", **further: Any) -> dict[str, Any]:
    """Of a plan; ``dtype`` is that of all inputs, or a list of each one's."""
    dtypes = dtype if isinstance(dtype, list) else [dtype]
    return {"op": op, "dtypes": dtypes, "shapes": {f"input{i}": each for i, each in enumerate(shapes)}, **further}


def run_ffi_plan(folder: Path, cases: Sequence[dict[str, Any]], **config: Any) -> Report:
    """``config`` is what backend ffi is given for all cases."""
    defaults = {"timeout": 200, "backend_config": {"ffi": config}}
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "backend": "ffi", "defaults": defaults, "cases": list(cases)}))
    return run({"plan": str(file), "runs_dir": str(folder / "runs")}, stream=io.StringIO())


def library_of(folder: Path, operator: str, source: str, **mapping: Any) -> dict[str, Any]:
    """What ``run_ffi_plan`` is given for a library whose ``f(n, x, y)`` is an operator of float32 vectors."""
    (folder / "own.c").write_text(source)
    (folder / "own.h").write_text("#include <stddef.h>\nvoid f(size_t n, const float *x, float *y);\n")
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", "libown.so", "own.c", "-pthread", "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    function = {
        "functions": {"float32": "f"},
        "dims": {"input": ["n"], "out": ["n"]},
        "call": ["size:n", "input:input", "output:out"],
    }
    held = {"version": 1, "name": "own", "library": ["own"], "dtypes": {"float32": "float"}, **mapping}
    (folder / "own.yaml").write_text(yaml.safe_dump({**held, "operators": {operator: [function]}}))
    return {"library": [str(folder / "libown.so")], "headers": str(folder / "own.h"), "mapping": "own.yaml"}
