"""Attributes of ONNX's windows, and their padding: beginnings and ends of every dimension, or an ``auto_pad`` rule."""

from __future__ import annotations

from collections.abc import Sequence

from optest.operators.describe import attribute
from optest.operators.shapes import Attributes, Shape
from optest.spec import UnfitArguments

WINDOW_ATTRIBUTES = (
    attribute("strides|stride: ints = None", "Steps between windows; 1 by default."),
    attribute("pads|padding: ints = None", "Beginnings of every dimension, then ends."),
    attribute(
        "auto_pad: str = 'NOTSET'",
        "SAME_UPPER and SAME_LOWER pad until the output has ⌈size / stride⌉, an odd element at the end or beginning.",
        choices=("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ),
    attribute("dilations|dilation: ints = None", "Steps between the elements of a window; 1 by default."),
)


def per_dimension(name: str, numbers: Sequence[int] | None, rank: int) -> Shape:
    """Return ``rank`` numbers, one for each dimension; ones for None.

    Raises:
        UnfitArguments: for another count, or numbers below 1.
    """
    if numbers is None:
        return (1,) * rank
    if len(numbers) != rank or min(numbers) < 1:
        raise UnfitArguments(f"{name} is {list(numbers)}, expected {rank} numbers of 1 or more")
    return tuple(numbers)


def padding_of(sizes: Shape, kernel: Shape, attributes: Attributes) -> tuple[Shape, Shape]:
    """Return the padding at the beginning and at the end of each dimension, from ``pads`` or ``auto_pad``.

    Raises:
        UnfitArguments: for a wrong number of ``pads``, ``pads`` with ``auto_pad``, or negative padding by SAME.
    """
    rank, pads, rule = len(sizes), attributes["pads"], attributes["auto_pad"]
    if pads is None and rule.startswith("SAME"):
        # ONNX pads (⌈size / stride⌉ − 1) · stride + (kernel − 1) · dilation + 1 − size in all. It is negative for
        # windows that step over elements: implementations treat −1 as 0; below it some of them crop both ends.
        strides, dilations = (per_dimension(name, attributes[name], rank) for name in ("strides", "dilations"))
        rows = zip(sizes, kernel, strides, dilations, strict=True)
        totals = [(-(-size // step) - 1) * step + (k - 1) * dilation + 1 - size for size, k, step, dilation in rows]
        if min(totals) < -1:
            raise UnfitArguments(
                f"auto_pad is {rule}, expected pads: the rule adds {totals} elements here, and implementations differ "
                "in the meaning of negative padding"
            )
        totals = [max(0, total) for total in totals]
        smaller, larger = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        return (smaller, larger) if rule == "SAME_UPPER" else (larger, smaller)
    if pads is None:
        return (0,) * rank, (0,) * rank
    if rule != "NOTSET":
        raise UnfitArguments(f"pads is {list(pads)}, expected no pads with auto_pad {rule}")
    if len(pads) != 2 * rank or min(pads) < 0:
        raise UnfitArguments(f"pads is {list(pads)}, expected {2 * rank} numbers of 0 or more: beginnings, then ends")
    return tuple(pads[:rank]), tuple(pads[rank:])
