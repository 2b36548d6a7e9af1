"""ONNX's padding of windows: beginnings and ends of every dimension, or a rule that keeps the sizes."""

from __future__ import annotations

from collections.abc import Sequence

from optest.operators.describe import attribute
from optest.operators.shapes import Attributes, Shape
from optest.spec import UnfitArguments

WINDOW_ATTRIBUTES = (
    attribute("strides|stride: ints = None", "Steps between windows; none is 1."),
    attribute("pads|padding: ints = None", "Beginnings of every dimension, then ends."),
    attribute(
        "auto_pad: str = 'NOTSET'",
        "SAME pads until the output has ⌈size / stride⌉; an odd one goes to the end, or the beginning.",
        choices=("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ),
    attribute("dilations|dilation: ints = None", "Steps between the elements that a window sees; none is 1."),
)


def each(name: str, stated: Sequence[int] | None, rank: int) -> Shape:
    """One number for each dimension, 1 where nothing is stated.

    Raises:
        UnfitArguments: for another count, or numbers below 1.
    """
    if stated is None:
        return (1,) * rank
    if len(stated) != rank or min(stated) < 1:
        raise UnfitArguments(f"{name} is {list(stated)}, but should be {rank} numbers of 1 or more")
    return tuple(stated)


def padding_of(sizes: Shape, kernel: Shape, attributes: Attributes) -> tuple[Shape, Shape]:
    """Beginnings and ends.

    Raises:
        UnfitArguments: for another count of ``pads``, ``pads`` beside ``auto_pad``, or a SAME that is not agreed on.
    """
    rank, stated, rule = len(sizes), attributes["pads"], attributes["auto_pad"]
    if stated is None and rule.startswith("SAME"):
        # ONNX pads (⌈size / stride⌉ − 1) · stride + (kernel − 1) · dilation + 1 − size in all. Windows that step over
        # elements can have less than nothing: −1 is nothing; of less, implementations crop both ends.
        strides, dilations = (each(name, attributes[name], rank) for name in ("strides", "dilations"))
        rows = zip(sizes, kernel, strides, dilations, strict=True)
        totals = [(-(-size // step) - 1) * step + (k - 1) * gap + 1 - size for size, k, step, gap in rows]
        if min(totals) < -1:
            raise UnfitArguments(
                f"auto_pad is {rule}, but should be pads here: it would add {totals} elements, and implementations "
                "differ in what less than nothing is"
            )
        totals = [max(0, total) for total in totals]
        smaller, larger = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        return (smaller, larger) if rule == "SAME_UPPER" else (larger, smaller)
    if stated is None:
        return (0,) * rank, (0,) * rank
    if rule != "NOTSET":
        raise UnfitArguments(f"pads is {list(stated)}, but should be left out with auto_pad {rule}")
    if len(stated) != 2 * rank or min(stated) < 0:
        wanted = f"{2 * rank} numbers of 0 or more: beginnings, then ends"
        raise UnfitArguments(f"pads is {list(stated)}, but should be {wanted}")
    return tuple(stated[:rank]), tuple(stated[rank:])
