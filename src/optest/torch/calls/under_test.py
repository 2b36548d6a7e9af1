"""Who is asked: the device, the compiler, and which calls may fall back to another way than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Reason
from optest.torch.calls.allowed import FELL_BACK
from optest.torch.calls.compilation import Compilation

__all__ = ["UnderTest"]


@dataclass(slots=True)
class UnderTest:
    """The device and compiler for one call of ``name``; ``may_fall_back`` lets it be answered otherwise."""

    name: str
    device: torch.device
    compiler: str | None = None
    may_fall_back: bool = False
    synchronize: Callable[[], None] = lambda: None
    same_strides: bool = False
    """Whether results have to have the strides that torch on the CPU gives them."""

    compilation: Compilation = field(default_factory=Compilation)
    fallbacks: list[str] = field(default_factory=list)
    notes: list[Check] = field(default_factory=list)
    compiled: Callable[[Sequence[torch.Tensor]], list[Any]] | None = None
    """What has been compiled, to be called again; None where no compiler is asked, or where it fell back."""

    further: list[tuple[str, list[Array]]] = field(default_factory=list)
    """How it was called again with the first values, and what it yielded: where its bits are not those of the first."""

    @contextmanager
    def allowing(self) -> Iterator[None]:
        """Keep a fall-back for the record where it is allowed.

        Raises:
            Fault: FALLBACK where it is not, and whatever else is raised within.
        """
        try:
            yield
        except Fault as fault:
            if fault.reason is not Reason.FALLBACK or not self.may_fall_back:
                raise
            self.fallbacks.append(fault.message)

    def checks(self) -> list[Check]:
        """What there is to be told beside the values."""
        return [
            *(
                Check(name=FELL_BACK, state=CheckState.NOTE, detail=f"{each}; --allow-fallback names {self.name}")
                for each in self.fallbacks
            ),
            *self.notes,
        ]
