"""Map of the errors of a wrong output, in the bounded form of :class:`optest.spec.Picture`."""

from __future__ import annotations

import base64
import math
import zlib

import numpy as np

from optest.compare import Expected
from optest.compare.elements import BlockResult, Ends
from optest.compare.kernels import Outcome, compared_blocks, exceed_one_if_wrong, mark_wrong_signs
from optest.compare.policy import Allowance
from optest.numerics import Array, Quiet
from optest.spec import LIMIT, NO_MULTIPLE, PER_DOUBLING, Picture

# Along each side of the map.
_MOST_CELLS = 64
# Of wrong elements, and as many of right ones.
_SAMPLES = 128


def draw(
    expected: Expected, actual: Array, reference: Array, allowance: Allowance, ends: Ends, mismatched: int
) -> Picture:
    """Return the picture of an output with ``mismatched`` wrong elements, compared as by the verdict."""
    dtype = expected.dtype
    drawing = Drawing(expected.name, tuple(expected.shape), mismatched)
    with Quiet():
        for start, block, right in compared_blocks(actual, reference, dtype, allowance, ends):
            if allowance.signed_zeros and dtype.is_float and not block.actual.all():
                block = mark_wrong_signs(Outcome(), block, right, dtype, allowance)
            error = block.error if block.odd is None else np.where(block.odd, 0.0, block.error)
            drawing.add(block, exceed_one_if_wrong(error / block.bound, block), start)
    return drawing.picture()


class Drawing:
    """Collector of the blocks of one output, in order, for its picture; it has ``mismatched`` wrong elements."""

    def __init__(self, output: str, shape: tuple[int, ...], mismatched: int) -> None:
        size = math.prod(shape)
        axes = [1, *(side for side in shape if side != 1)]
        rows, columns = (axes if len(axes) > 1 else [1, 1])[-2:]
        self._folded = len(axes) == 2 and size > _MOST_CELLS
        if self._folded:  # one axis becomes rows of a power of two, so that tiles of it are rows or columns of the map
            columns = 1 << math.ceil(math.log2(size) / 2)
            rows = -(-size // columns)
        self._size = size
        self._output, self._rows, self._columns = output, rows, columns
        self._cell = _cell_size(rows), _cell_size(columns)
        self._width = -(-columns // self._cell[1])
        self._levels = np.zeros(-(-rows // self._cell[0]) * self._width, np.uint8)
        self._counts = np.zeros(256, np.int64)
        self._seen = {True: 0, False: 0}
        # Elements per sample, of wrong ones (True) and of right ones.
        self._every = {True: -(-mismatched // _SAMPLES) or 1, False: -(-(size - mismatched) // _SAMPLES) or 1}
        self._samples: dict[bool, list[str]] = {True: [], False: []}

    def add(self, block: BlockResult, used: Array, offset: int) -> None:
        """Add a block that begins at the flat index ``offset``; ``used`` are its errors in units of their bounds."""
        wrong = np.zeros(used.shape, np.bool_) if block.wrong is None else block.wrong
        steps = np.log2(used)
        steps *= PER_DOUBLING
        shades = np.where(wrong, np.maximum(np.floor(steps), 0.0) + 1.0, np.minimum(np.ceil(steps), 0.0))
        shades += LIMIT
        np.maximum(shades, 2.0, out=shades)
        np.minimum(shades, NO_MULTIPLE - 1.0, out=shades)
        shades[~(used > 0.0)] = 1.0  # no error, or no measurable one: elements that are right by their class
        shades[wrong & ~np.isfinite(used)] = NO_MULTIPLE
        levels = shades.astype(np.uint8)
        self._counts += np.bincount(levels, minlength=256)
        position = np.arange(offset, offset + used.size)
        # Leading axes are laid over each other: a cell has the largest error of all of them.
        if self._rows * self._columns < self._size:
            position %= self._rows * self._columns
        row = position // self._columns
        column = position - row * self._columns
        np.maximum.at(self._levels, row // self._cell[0] * self._width + column // self._cell[1], levels)
        for is_wrong in (True, False):
            at, every = np.flatnonzero(wrong == is_wrong), self._every[is_wrong]
            chosen = at[-self._seen[is_wrong] % every :: every]
            self._seen[is_wrong] += at.size
            actual, target = block.actual[chosen], block.target[chosen]
            if actual.dtype.kind == "c":  # draw the component that differs more
                imaginary = np.abs(actual.imag - target.imag) > np.abs(actual.real - target.real)
                actual, target = (np.where(imaginary, x.imag, x.real) for x in (actual, target))
            pairs = zip(actual.tolist(), target.tolist(), strict=True)
            self._samples[is_wrong] += [f"{float(got):.7g} {float(right):.7g}" for got, right in pairs]

    def picture(self) -> Picture:
        """Return the picture of all blocks that were added."""
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


def _cell_size(size: int) -> int:
    """Return the number of elements per cell along an axis: a power of two, so that cells end at the ends of tiles."""
    return 1 << max(0, math.ceil(math.log2(max(size, 1) / _MOST_CELLS)))
