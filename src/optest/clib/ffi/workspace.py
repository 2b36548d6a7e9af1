"""Scratch memory for a library: exactly as large as it asked for, with canaries, and never empty by luck."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optest.memory.buffers import Buffer, Change
from optest.memory.poisons import Poison
from optest.memory.regions import Placement
from optest.spec import TensorSpec, dtype

__all__ = ["WORKSPACE", "WORKSPACE_CONTENTS", "Workspace"]

WORKSPACE = "workspace"
"""The name of every workspace's buffer."""

_BYTE = dtype("uint8")
_ALIGNMENT_BYTES = 256
_PAGE_ALIGNMENT_BYTES = 16
"""What malloc promises; a library casts its workspace to whatever it needs."""

WORKSPACE_CONTENTS = (0xFF, 0x00)
"""Bytes to fill a workspace with: as floats of any width NaN, and zeros. A result that differs depends on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """``size`` bytes that hold ``content`` at first, between guards that hold a poison."""

    buffer: Buffer

    @classmethod
    def allocate(cls, size: int, *, content: int = 0xFF, placement: Placement = Placement.HEAP) -> Workspace:
        """Memory of ``size`` bytes.

        Raises:
            ValueError: for a negative size, or a content that is no byte.
        """
        if size < 0 or not 0 <= content <= 255:
            raise ValueError(f"workspace has {size} bytes of {content}, but should have 0 or more, of 0 to 255")
        spec = TensorSpec(dtype=_BYTE, shape=(size,))
        buffer = Buffer.allocate(
            spec,
            name=WORKSPACE,
            poison=Poison.A5,
            placement=placement,
            alignment=_ALIGNMENT_BYTES,
            page_alignment=_PAGE_ALIGNMENT_BYTES,
        )
        workspace = cls(buffer=buffer)
        workspace.fill(content)
        return workspace

    @property
    def size(self) -> int:
        return self.buffer.spec.elements

    @property
    def address(self) -> int | None:
        """None for a workspace of 0 bytes: a library that asked for none gets a null pointer."""
        return self.buffer.address if self.size else None

    def fill(self, content: int) -> None:
        """Give every byte a value, as if an earlier call had left it."""
        self.buffer.array[...] = np.uint8(content)

    def outside(self) -> Change | None:
        """What was written beyond the size that was asked for."""
        change = self.buffer.outside()
        return change.in_plain_bytes() if change is not None else None
