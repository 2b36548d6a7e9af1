"""Imports: ``optest --help`` needs no YAML, reading a plan needs no NumPy."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUILD = """
from optest.plan import CaseRequest, PlanHost, build_cases, case_plan, command_line, parse_plan
from optest.operators import operators
from optest.spec import BackendTarget
document = parse_plan(b"cases: [{op: matmul, shapes: {input0: 2x3, input1: 3x4}}]", "p.yaml")
host = PlanHost(operators=operators, target=BackendTarget(name="numpy"), check_fill=lambda fill: None)
(case,) = build_cases(document, CaseRequest(), host)
assert command_line(case) and case_plan(case)
"""


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import optest.plan", ["yaml", "pydantic", "numpy", "typing_extensions"]),
        (
            "from optest.plan import request_from; request_from({'shape': ['a=2'], 'attr': ['b=2']})",
            ["yaml", "pydantic"],
        ),
        (BUILD, ["numpy", "torch", "ml_dtypes"]),
    ],
)
def test_imports(code: str, absent: list[str]) -> None:
    check = f"\nimport sys\nfound = [name for name in {absent} if name in sys.modules]\nassert not found, found"
    subprocess.run([sys.executable, "-c", code + check], check=True, timeout=600)
