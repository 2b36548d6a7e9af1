"""How far each element of a wrong output is off, in the bounded form of :class:`optest.spec.Picture`."""

from __future__ import annotations

import base64
import math
import zlib

import numpy as np

from optest.compare.elements import Judged
from optest.numerics import Array
from optest.spec import LIMIT, NO_MULTIPLE, PER_DOUBLING, Picture

_MOST_CELLS = 64
"""Along each side of the map."""
_SAMPLES = 128
"""Of wrong elements, and of right ones."""


class Drawing:
    """Takes in the blocks of one output in order; ``mismatched`` is how many elements are wrong in all of them."""

    def __init__(self, output: str, shape: tuple[int, ...], mismatched: int) -> None:
        size = math.prod(shape)
        axes = [1, *(side for side in shape if side != 1)]
        rows, columns = (axes if len(axes) > 1 else [1, 1])[-2:]
        self._folded = len(axes) == 2 and size > _MOST_CELLS
        if self._folded:  # into a power of two, so that tiles of one axis are rows, or columns, of the map
            columns = 1 << math.ceil(math.log2(size) / 2)
            rows = -(-size // columns)
        self._size = size
        self._output, self._rows, self._columns = output, rows, columns
        self._cell = _cell(rows), _cell(columns)
        self._width = -(-columns // self._cell[1])
        self._levels = np.zeros(-(-rows // self._cell[0]) * self._width, np.uint8)
        self._counts = np.zeros(256, np.int64)
        self._seen = {True: 0, False: 0}
        self._every = {True: -(-mismatched // _SAMPLES) or 1, False: -(-(size - mismatched) // _SAMPLES) or 1}
        self._samples: dict[bool, list[str]] = {True: [], False: []}

    def add(self, block: Judged, used: Array, offset: int) -> None:
        """``used`` is the share that each error takes of its allowance; it begins at the flat index ``offset``."""
        wrong = np.zeros(used.shape, np.bool_) if block.wrong is None else block.wrong
        steps = np.log2(used)
        steps *= PER_DOUBLING
        shades = np.where(wrong, np.maximum(np.floor(steps), 0.0) + 1.0, np.minimum(np.ceil(steps), 0.0))
        shades += LIMIT
        np.maximum(shades, 2.0, out=shades)
        np.minimum(shades, NO_MULTIPLE - 1.0, out=shades)
        shades[~(used > 0.0)] = 1.0  # no error; or none that can be told, of elements that are right by their class
        shades[wrong & ~np.isfinite(used)] = NO_MULTIPLE
        levels = shades.astype(np.uint8)
        self._counts += np.bincount(levels, minlength=256)
        place = np.arange(offset, offset + used.size)
        if self._rows * self._columns < self._size:
            place %= self._rows * self._columns
        row = place // self._columns
        column = place - row * self._columns
        np.maximum.at(self._levels, row // self._cell[0] * self._width + column // self._cell[1], levels)
        for which in (True, False):
            at, every, seen = np.flatnonzero(wrong == which), self._every[which], self._seen[which]
            chosen = at[-seen % every :: every]
            self._seen[which] += at.size
            actual, target = block.actual[chosen], block.target[chosen]
            if actual.dtype.kind == "c":  # of two components the one that differs more
                imaginary = np.abs(actual.imag - target.imag) > np.abs(actual.real - target.real)
                actual, target = (np.where(imaginary, each.imag, each.real) for each in (actual, target))
            pairs = zip(actual.tolist(), target.tolist(), strict=True)
            self._samples[which] += [f"{float(got):.7g} {float(right):.7g}" for got, right in pairs]

    def picture(self) -> Picture:
        return Picture(
            output=self._output,
            rows=self._rows,
            columns=self._columns,
            cell=self._cell,
            levels=base64.b64encode(zlib.compress(self._levels.tobytes(), 9)).decode(),
            folded=self._folded,
            histogram=tuple((int(level), int(self._counts[level])) for level in np.flatnonzero(self._counts)),
            wrong=" ".join(self._samples[True]),
            right=" ".join(self._samples[False]),
        )


def _cell(size: int) -> int:
    """A power of two, so that cells end where tiles do."""
    return 1 << max(0, math.ceil(math.log2(max(size, 1) / _MOST_CELLS)))
