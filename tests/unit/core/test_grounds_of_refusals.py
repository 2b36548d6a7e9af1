"""A call that should have been refused is reported with the operator's reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_kit import planned_case, verdict_of

from optest.spec import Reason


def accepts_all(*_: Any) -> Any:
    return np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("entry", "because"),
    [
        ({"op": "relu", "dtypes": "bool", "shapes": {"input0": [3]}}, "relu is not defined for bool"),
        ({"op": "add", "shapes": {"input0": [3], "input1": [4]}}, "expected 3 or 1 to broadcast"),
        ({"op": "softmax", "shapes": {"input0": [3]}, "attributes": {"dim": 2}}, "dim is 2"),
        (
            {
                "op": "embedding",
                "dtypes": ["float32", "int64"],
                "shapes": {"input0": [5, 3], "input1": [3]},
                "generator": {"input1": {"fill": "data", "values": [0, -1, 2]}},
            },
            "indices is -1 at [1], expected 0 to 4",
        ),
        ({"op": "relu", "shapes": {"input0": [3]}}, None),
    ],
)
def test_the_operator_says_why(entry: dict[str, Any], because: str | None, tmp_path: Path) -> None:
    verdict = verdict_of(accepts_all, planned_case(tmp_path, **entry, expects_error={"type": "Exception"}))
    assert verdict.reason is Reason.NOT_REFUSED
    if because is None:
        assert "why" not in verdict.details
    else:
        assert because in verdict.details["why"]
