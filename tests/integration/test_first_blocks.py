"""The first block of a check names the cause, for one fault of each hypothesis."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the kernels are torch functions; pip install torch")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from explained import first_block
from wrong_kernels import causes

FIRST = {
    planted.hypothesis: (name, planted) for name, planted in reversed([*causes.importable()]) if planted.hypothesis
}


@pytest.mark.heavy
@pytest.mark.parametrize("hypothesis", FIRST)
def test_first_block_names_cause(hypothesis: str) -> None:
    name, planted = FIRST[hypothesis]
    assert re.search(planted.words, "\n".join(first_block(planted.operator, name)[1:]))
