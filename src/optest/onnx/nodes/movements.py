"""ONNX nodes of data movement and indexing."""

from __future__ import annotations

from optest.onnx.nodes.node import NODES, Differs, Node, NodeOf, OnnxCall, builds
from optest.operators.onnx.movements import PAD_MODES
from optest.operators.shapes import slices_of

# Bounds of Slice beyond every dimension.
_FIRST, _LAST = -(2**63), 2**63 - 1


@builds("transpose")
def _transpose_node(call: OnnxCall) -> Node:
    order = list(range(call.rank))
    if order:
        first, second = call.axis(call["dim0"]), call.axis(call["dim1"])
        order[first], order[second] = second, first
    return Node(op="Transpose", attributes={"perm": order or None})


@builds("broadcast_to")
def _expand_node(call: OnnxCall) -> Node:
    if call.is_refused:
        raise Differs("Expand also broadcasts the requested shape to the input, which the operator forbids")
    return Node(op="Expand", attributes={"shape": tuple(1 if size == -1 else size for size in call["size"])})


@builds("tile")
def _tile_node(call: OnnxCall) -> Node:
    dims = tuple(call["dims"])
    if len(dims) > call.rank:
        raise Differs("Tile adds no dimensions")
    return Node(op="Tile", attributes={"repeats": (1,) * (call.rank - len(dims)) + dims})


@builds("flip")
def _flip_node(call: OnnxCall) -> Node:
    axes = tuple(call.axis(dim) for dim in call["dims"])
    if len(set(axes)) < len(axes):
        raise Differs("Slice accepts each axis once")
    count = len(axes)
    bounds = {"starts": (_LAST,) * count, "ends": (_FIRST,) * count, "axes": axes, "steps": (-1,) * count}
    return Node(op="Slice", attributes=bounds)


@builds("slice")
def _slice_node(call: OnnxCall) -> Node:
    slices = []
    for axis, start, end, stated in slices_of(call.case.attributes):
        step = 1 if stated is None else int(stated)
        first, last = (0, _LAST) if step > 0 else (_LAST, _FIRST)
        slices.append((axis, first if start is None else start, last if end is None else end, step))
    bounds = zip(*slices, strict=True) if slices else ((),) * 4
    return Node(op="Slice", attributes=dict(zip(("axes", "starts", "ends", "steps"), bounds, strict=True)))


@builds("split")
def _split_node(call: OnnxCall) -> Node:
    sizes, axis = call["split_size_or_sections"], call.axis(call["dim"])
    if isinstance(sizes, int):
        length = call.spec().shape[axis]
        if sizes < 1:
            raise Differs("Split needs the sizes of the parts")
        sizes = tuple(min(sizes, length - start) for start in range(0, length, sizes)) or (0,)
    return Node(op="Split", attributes={"axis": axis, "split": tuple(sizes)}, outputs=len(sizes))


@builds("pad")
def _pad_node(call: OnnxCall) -> Node:
    # ONNX begins with the first dimension, torch with the last.
    stated = call["pad"]
    if len(stated) % 2 or len(stated) > 2 * call.rank:
        raise Differs("Pad needs a beginning and an end of each dimension")
    before, after = ([0] * (call.rank - len(stated) // 2) + [*stated[first::2]][::-1] for first in (0, 1))
    mode = next(name for name, torch_name in PAD_MODES.items() if torch_name == call["mode"])
    value = call["value"] if mode == "constant" else None
    if call.is_refused and mode == "wrap":
        raise Differs("Pad wraps around several times if needed")
    if call.is_refused and value is not None and not call.spec().dtype.is_inexact:
        raise Differs("the value of Pad has the dtype of the data, and cannot have another")
    return Node(op="Pad", attributes={"pads": (*before, *after), "constant_value": value, "mode": mode})


def _scatter_node(reduction: str) -> NodeOf:
    def node(call: OnnxCall) -> Node:
        _require_dimension(call, "ScatterElements")
        if call.spec(1).shape != call.spec(2).shape:
            raise Differs("ScatterElements needs indices and updates of equal shape")
        return Node(op="ScatterElements", attributes={"axis": call["dim"], "reduction": reduction})

    return node


@builds("gather")
def _gather_elements_node(call: OnnxCall) -> Node:
    _require_dimension(call, "GatherElements")
    return Node(op="GatherElements", attributes={"axis": call["dim"]})


@builds("index_select")
def _index_select_node(call: OnnxCall) -> Node:
    if not call.spec(1).rank:
        raise Differs("Gather drops the dimension for a scalar index")
    return Node(op="Gather", attributes={"axis": call["dim"]})


@builds("embedding")
def _embedding_node(call: OnnxCall) -> Node:
    call.require_rank("the table of rows", 2)
    if call.is_refused and call["padding_idx"] is not None:
        raise Differs("Gather has no padding_idx")
    return Node(op="Gather", attributes={"axis": 0})


def _require_dimension(call: OnnxCall, op: str) -> None:
    if not call.rank:
        raise Differs(f"{op} needs at least one dimension")


@builds("topk")
def _topk_node(call: OnnxCall) -> Node:
    stated = {"K": (call["k"],), "axis": call["dim"], "largest": call["largest"], "sorted": call["sorted"]}
    return Node(op="TopK", attributes=stated, outputs=2)


NODES.update(
    {
        "reshape": lambda call: Node(op="Reshape", attributes={"shape": tuple(call["shape"]), "allowzero": 1}),
        "permute": lambda call: Node(
            op="Transpose", attributes={"perm": [call.axis(dim) for dim in call["dims"]] or None}
        ),
        "tril": lambda call: Node(op="Trilu", attributes={"upper": False, "k": call["diagonal"]}),
        "triu": lambda call: Node(op="Trilu", attributes={"upper": True, "k": call["diagonal"]}),
        "scatter": _scatter_node("none"),
        "scatter_add": _scatter_node("add"),
    }
)
