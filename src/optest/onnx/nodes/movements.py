"""Movements and indexing."""

from __future__ import annotations

from optest.onnx.nodes.node import Asked, Differs, Node, NodeOf
from optest.operators.onnx.movements import PAD_MODES
from optest.operators.shapes import stated_slices

_FIRST, _LAST = -(2**63), 2**63 - 1
"""Bounds of Slice that lie beyond every dimension."""


def _transpose(asked: Asked) -> Node:
    order = list(range(asked.rank))
    if order:
        one, other = asked.axis(asked["dim0"]), asked.axis(asked["dim1"])
        order[one], order[other] = other, one
    return Node(op="Transpose", attributes={"perm": order or None})


def _expand(asked: Asked) -> Node:
    if asked.is_refused:
        raise Differs("Expand broadcasts in both directions")
    return Node(op="Expand", attributes={"shape": tuple(1 if size == -1 else size for size in asked["size"])})


def _tile(asked: Asked) -> Node:
    dims = tuple(asked["dims"])
    if len(dims) > asked.rank:
        raise Differs("Tile adds no dimensions")
    return Node(op="Tile", attributes={"repeats": (1,) * (asked.rank - len(dims)) + dims})


def _flip(asked: Asked) -> Node:
    axes = tuple(asked.axis(dim) for dim in asked["dims"])
    if len(set(axes)) < len(axes):
        raise Differs("Slice takes each axis once")
    count = len(axes)
    bounds = {"starts": (_LAST,) * count, "ends": (_FIRST,) * count, "axes": axes, "steps": (-1,) * count}
    return Node(op="Slice", attributes=bounds)


def _slice(asked: Asked) -> Node:
    slices = []
    for axis, start, end, stated in stated_slices(asked.case.attributes):
        step = 1 if stated is None else int(stated)
        first, last = (0, _LAST) if step > 0 else (_LAST, _FIRST)
        slices.append((axis, first if start is None else start, last if end is None else end, step))
    bounds = zip(*slices, strict=True) if slices else ((),) * 4
    return Node(op="Slice", attributes=dict(zip(("axes", "starts", "ends", "steps"), bounds, strict=True)))


def _split(asked: Asked) -> Node:
    sizes, axis = asked["split_size_or_sections"], asked.axis(asked["dim"])
    if isinstance(sizes, int):
        whole = asked.spec().shape[axis]
        if sizes < 1:
            raise Differs("Split takes the sizes of the parts")
        sizes = tuple(min(sizes, whole - start) for start in range(0, whole, sizes)) or (0,)
    return Node(op="Split", attributes={"axis": axis, "split": tuple(sizes)}, outputs=len(sizes))


def _pad(asked: Asked) -> Node:
    """ONNX begins with the first dimension, torch with the last."""
    stated = asked["pad"]
    if len(stated) % 2 or len(stated) > 2 * asked.rank:
        raise Differs("Pad takes a beginning and an end of each dimension")
    before, after = ([0] * (asked.rank - len(stated) // 2) + [*stated[first::2]][::-1] for first in (0, 1))
    mode = next(own for own, ours in PAD_MODES.items() if ours == asked["mode"])
    value = asked["value"] if mode == "constant" else None
    if asked.is_refused and mode == "wrap":
        raise Differs("Pad wraps around as often as it takes")
    if asked.is_refused and value is not None and not asked.spec().dtype.is_inexact:
        raise Differs("the value of Pad has the dtype of the data, so that another cannot be stated")
    return Node(op="Pad", attributes={"pads": (*before, *after), "constant_value": value, "mode": mode})


def _scatter(reduction: str) -> NodeOf:
    def node(asked: Asked) -> Node:
        _require_dimension(asked, "ScatterElements")
        if asked.spec(1).shape != asked.spec(2).shape:
            raise Differs("ScatterElements takes indices and updates of one shape")
        return Node(op="ScatterElements", attributes={"axis": asked["dim"], "reduction": reduction})

    return node


def _gather_elements(asked: Asked) -> Node:
    _require_dimension(asked, "GatherElements")
    return Node(op="GatherElements", attributes={"axis": asked["dim"]})


def _require_dimension(asked: Asked, op: str) -> None:
    if not asked.rank:
        raise Differs(f"{op} takes one dimension or more")


def _index_select(asked: Asked) -> Node:
    if not asked.spec(1).rank:
        raise Differs("Gather takes the dimension away for a scalar index")
    return Node(op="Gather", attributes={"axis": asked["dim"]})


def _embedding(asked: Asked) -> Node:
    asked.require_rank("the table of rows", 2)
    if asked.is_refused and asked["padding_idx"] is not None:
        raise Differs("Gather has no padding_idx")
    return Node(op="Gather", attributes={"axis": 0})


def _topk(asked: Asked) -> Node:
    stated = {"K": (asked["k"],), "axis": asked["dim"], "largest": asked["largest"], "sorted": asked["sorted"]}
    return Node(op="TopK", attributes=stated, outputs=2)


NODES: dict[str, NodeOf] = {
    "transpose": _transpose,
    "permute": lambda asked: Node(
        op="Transpose", attributes={"perm": [asked.axis(dim) for dim in asked["dims"]] or None}
    ),
    "reshape": lambda asked: Node(op="Reshape", attributes={"shape": tuple(asked["shape"]), "allowzero": 1}),
    "broadcast_to": _expand,
    "tile": _tile,
    "flip": _flip,
    "slice": _slice,
    "split": _split,
    "pad": _pad,
    "tril": lambda asked: Node(op="Trilu", attributes={"upper": False, "k": asked["diagonal"]}),
    "triu": lambda asked: Node(op="Trilu", attributes={"upper": True, "k": asked["diagonal"]}),
    "gather": _gather_elements,
    "index_select": _index_select,
    "embedding": _embedding,
    "scatter": _scatter("none"),
    "scatter_add": _scatter("add"),
    "topk": _topk,
}
