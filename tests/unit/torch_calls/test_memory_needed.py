"""Why a case is left out for its memory, in units in which the figures are not 0."""

from __future__ import annotations

import os

import pytest
from torch_kit import case, tensor

from optest.process import available_bytes
from optest.torch.calls import memory_needed
from optest.torch.calls.memory_needed import why_too_large

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("shape", "most", "said"),
    [
        ((2, 3), 10, "too large: it needs about 120 bytes of memory, but --max-bytes is 10 bytes"),
        ((20, 30), 2**11, "too large: it needs about 11.7 KiB of memory, but --max-bytes is 2.0 KiB"),
        ((2000, 300), 2**20, "too large: it needs about 11.4 MiB of memory, but --max-bytes is 1.0 MiB"),
        ((2000, 30_000), 2**30, "too large: it needs about 1.1 GiB of memory, but --max-bytes is 1.0 GiB"),
        ((2, 3), 2**20, None),
    ],
)
def test_a_limit_is_told_in_its_own_unit(shape: tuple[int, ...], most: int, said: str | None) -> None:
    assert why_too_large(case("torch.abs(input0)", tensor(shape)), most) == said


def test_the_limit_follows_the_memory_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, limit in ((None, 2 << 30), (3 << 30, 2 << 30), (24 << 30, 12 << 30)):
        monkeypatch.setattr(memory_needed, "available_bytes", lambda available=available: available)
        assert memory_needed.default_limit() == limit


def test_what_is_left_is_some_of_what_the_machine_has() -> None:
    left = available_bytes()
    assert left is not None
    assert 2**20 < left <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
