"""Location of the wrong elements of a tensor in a few words: rows, columns, tiles, strides."""

from __future__ import annotations

import math

import numpy as np

from optest.numerics import Array


class Sketch:
    """Collector of the flat indices of wrong elements; it keeps hits per coordinate, never the indices themselves."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.count = 0
        self._first = -1
        self._last = -1
        self._hits = [np.zeros(size, np.bool_) for size in shape]

    def add(self, flat: Array) -> None:
        """Add increasing flat indices of one block; blocks are added in order."""
        if not flat.size:
            return
        if self.count == 0:
            self._first = int(flat[0])
        self._last = int(flat[-1])
        self.count += flat.size
        if self.shape:
            for hits, coordinates in zip(self._hits, np.unravel_index(flat, self.shape), strict=True):
                hits[coordinates] = True

    def phrase(self) -> str:
        """Return the location, such as ``row 12, columns 29..31``; "" without wrong elements or for a single
        element.
        """
        total = math.prod(self.shape)
        if not self.count or total <= 1:
            return ""
        if self.count == total:
            return "everywhere"
        if self.count == 1:
            return f"element {[int(axis) for axis in np.unravel_index(self._first, self.shape)]}"
        sets = [np.flatnonzero(hits) for hits in self._hits]
        # A full grid of rows, columns, … is described exactly, everything else by its extent.
        if self.count == math.prod(hit.size for hit in sets):
            return _describe_grid(sets, self.shape)
        if len(self.shape) > 1 and self._last - self._first + 1 == self.count:
            if self._last == total - 1:
                return f"the last {self.count} elements in memory order"
            if self._first == 0:
                return f"the first {self.count} elements in memory order"
            return f"elements {self._first}..{self._last} in memory order"
        # Indices with a stride stay as they are, others become the range from the first to the last.
        extents = [x if x.size > 2 and _common_step(x) > 1 else np.arange(int(x[0]), int(x[-1]) + 1) for x in sets]
        inside = _describe_grid(extents, self.shape)
        if inside == "everywhere":
            sizes = tuple(hit.size for hit in sets)
            if len(sizes) != 2 or sizes == tuple(self.shape):
                return "scattered over the whole tensor"
            return f"scattered over {sizes[0]} of {self.shape[0]} rows and {sizes[1]} of {self.shape[1]} columns"
        return f"scattered over {inside}"


def _describe_grid(sets: list[Array], shape: tuple[int, ...]) -> str:
    """Describe the grid of these indices along each axis; "everywhere" if it is the whole tensor."""
    leading = [(f"axis {axis} at", f"axis {axis} at") for axis in range(len(shape) - 2)]
    names = [*leading, ("row", "rows"), ("column", "columns")] if len(shape) > 1 else [("element", "elements")]
    parts = [
        _describe_axis(hit, size, name, plural) for hit, size, (name, plural) in zip(sets, shape, names, strict=True)
    ]
    return ", ".join(part for part in parts if part) or "everywhere"


def _describe_axis(indices: Array, size: int, name: str, plural: str) -> str:
    """Describe the indices along one axis; return "" if they are all of them."""
    if indices.size == size:
        return ""
    first, last = int(indices[0]), int(indices[-1])
    if indices.size == 1:
        return f"{name} {first}"
    step = _common_step(indices)
    if step == 1:
        return f"{plural} {first}..{last} of {size}" + (" (the last tile)" if _is_last_tile(first, size) else "")
    if step > 1 and indices.size > 2:
        end = "" if last + step >= size else f" to {last}"
        suffix = "th" if 10 <= step % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(step % 10, "th")
        return f"every {step}{suffix} {name.removesuffix(' at')} from {first}{end}"
    if indices.size <= 4:
        return f"{plural} " + ", ".join(str(int(index)) for index in indices)
    return f"{indices.size} of {size} {plural.removesuffix(' at')} between {first} and {last}"


def _common_step(indices: Array) -> int:
    """Return the common difference of increasing indices, 0 if they have none."""
    if indices.size < 2:
        return 1
    steps = np.diff(indices)
    return int(steps[0]) if bool((steps == steps[0]).all()) else 0


def _is_last_tile(first: int, size: int) -> bool:
    """Return whether ``first`` begins the last tile along an axis, for some tile size of 8, 16, 32, …"""
    tile = 8
    while tile < size - first:
        tile *= 2
    return first > 0 and first % tile == 0
