"""What is prepared once for many calls of a C library says the same of each of them as if it were made anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_ffi_config import case_of

from optest.clib.library.descriptors import _Creation
from optest.clib.library.driver import _required
from optest.clib.probing.library_probe import LibraryProbe
from optest.clib.probing.policy import _what_one_call_shows
from optest.spec import CheckState, Fault, Reason


class Creates:
    """A function ``create(first, slot, handle)`` that puts the given pointers into the slot, None for none."""

    keys = ("first", "slot", "handle")

    def __init__(self, *pointers: int | None) -> None:
        self.pointers = list(pointers)
        self.told: list[tuple[Any, Any]] = []
        self.function = SimpleNamespace(name="create", again=self._again)

    def __call__(self, values: dict[str, Any]) -> None:
        self._again([values[key] for key in self.keys])

    def _again(self, told: Sequence[Any]) -> None:
        self.told.append((told[0], told[2]))
        pointer = self.pointers.pop(0)
        if pointer is not None:
            told[1]._obj.value = pointer


def test_every_call_is_told_its_own_pointers() -> None:
    call: Any = Creates(11, 12, 13)
    creation = _Creation(call)
    made = [creation.pointer({"handle": 7}, {"first": first}, "thing") for first in (1, 2, None)]
    assert made == [11, 12, 13]
    assert call.told == [(1, 7), (2, 7), (None, 7)]


@pytest.mark.parametrize("before", [(), (11,), (11, 12)])
def test_a_pointer_of_the_call_before_is_none_of_this_one(before: tuple[int, ...]) -> None:
    call: Any = Creates(*before, None)
    creation = _Creation(call)
    for pointer in before:
        assert creation.pointer({"handle": 7}, {"first": 1}, "thing") == pointer
    with pytest.raises(Fault, match="thing was created without an error, but its pointer is NULL") as found:
        creation.pointer({"handle": 7}, {"first": 1}, "thing")
    assert found.value.reason is Reason.NOT_REFUSED


def test_a_policy_is_that_of_the_configuration_and_the_case() -> None:
    configs = [_required(case_of(probes=probes)) for probes in ("all", "guards")]
    library_probe = LibraryProbe(configs[0])
    asked = [(key, config, often) for key in ("k1:a1", "k1:a0") for config in configs for often in (False, True)]
    for _ in range(2):
        for key, config, often in asked:
            policy = library_probe._policy(key, config, often=often)
            assert policy.is_brief is (config.probes == "guards")
            assert policy.has_extra_probes is key.endswith("0")
            assert policy.counts_leaks is (often or key.endswith("0"))
            assert policy.calls_often is often
    same = library_probe._policy("k1:f1", configs[1], often=False)
    assert library_probe._policy("k1:b2", configs[1], often=False) is same
    assert library_probe._policy("k1:b2", replace(configs[1]), often=False) is not same


def test_what_one_call_shows_is_said_by_where_it_looked() -> None:
    on_heap, on_pages = (_what_one_call_shows(guard, 1, "no more") for guard in ("heap", None))
    assert ["256 bytes" in on_heap[0].detail, "forbidden pages" in on_pages[0].detail] == [True, True]
    assert [each.detail for each in on_pages if each.state is CheckState.NOT_POSSIBLE] == ["no more"] * 5
    aligned = _what_one_call_shows(None, 64, "no more")
    assert "multiples of 64 bytes" in next(each.detail for each in aligned if each.name == "other alignments")
