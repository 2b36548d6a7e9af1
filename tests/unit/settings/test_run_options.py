"""Options of the Python API are checked as those of the command line are, by the one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from texts import refusal

import optest
from optest.errors import UnknownName, UsageError
from optest.settings import RunOptions


def test_a_choice_that_does_not_exist() -> None:
    with refusal(UnknownName, "settings.unknown_tier_paritty_did"):
        optest.check(abs, op="abs", tier="paritty")


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"op": abs}, "op is <built-in function abs>, expected text"),
        ({"op": ["relu", 3]}, "op is 3, expected text"),
        ({"seed": 1.5}, "seed is 1.5, expected an integer"),
        ({"jobs": True}, "jobs is True, expected an integer"),
        ({"timeout": "1"}, "timeout is '1', expected a number"),
        ({"bench": "no"}, "bench is 'no', expected True or False"),
    ],
)
def test_a_value_of_another_type(stated: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        RunOptions(**stated)
    assert str(raised.value) == words


def test_one_value_several_and_paths() -> None:
    assert dict(RunOptions(case_set="special, ties", op=["relu,elu", "exp"])) == {
        "case_set": ("special", "ties"),
        "op": ("relu", "elu", "exp"),
    }
    given = RunOptions(op="relu", expectations=Path("a.yaml"), shape={"input0": [2, 3]}, timeout=1, seed=0)
    assert dict(given) == {
        "op": ("relu",),
        "expectations": ("a.yaml",),
        "shape": ("input0=2x3",),
        "timeout": 1,
        "seed": 0,
    }
