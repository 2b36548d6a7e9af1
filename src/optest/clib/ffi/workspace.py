"""Scratch memory for a library: exactly as large as it asked for, between guards, and NULL where that is nothing."""

from __future__ import annotations

from dataclasses import dataclass

from optest.memory.buffers import Buffer
from optest.memory.poisons import Poison
from optest.memory.regions import Placement
from optest.spec import TensorSpec, dtype

__all__ = ["WORKSPACE", "Workspace"]

WORKSPACE = "workspace"
"""The name of every workspace's buffer."""

_ALIGNMENT_BYTES = 256
_PAGE_ALIGNMENT_BYTES = 16
"""What malloc promises; a library casts its workspace to whatever it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Bytes of no type; what they hold is the caller's to say."""

    buffer: Buffer

    @classmethod
    def allocate(cls, size: int, *, placement: Placement = Placement.HEAP) -> Workspace:
        """Memory of ``size`` bytes, 0 or more."""
        buffer = Buffer.allocate(
            TensorSpec(dtype=dtype("uint8"), shape=(size,)),
            name=WORKSPACE,
            poison=Poison.A5,
            placement=placement,
            alignment=_ALIGNMENT_BYTES,
            page_alignment=_PAGE_ALIGNMENT_BYTES,
        )
        return cls(buffer=buffer)

    @property
    def size(self) -> int:
        return self.buffer.spec.elements

    @property
    def address(self) -> int | None:
        """None for a workspace of 0 bytes: a library that asked for none gets a null pointer."""
        return self.buffer.address if self.size else None
