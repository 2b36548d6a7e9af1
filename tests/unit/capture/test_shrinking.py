"""Smaller sizes: what belongs together is divided by the same number, and the call can still be made."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from optest.torch.capture.shrinking import shrink_entry  # noqa: E402

pytestmark = pytest.mark.torch


def T(*shape: int, **more: Any) -> dict[str, Any]:
    return {"tensor": {"shape": list(shape), "dtype": "float32", **more}}


def I(*shape: int, **more: Any) -> dict[str, Any]:  # noqa: E743
    return T(*shape, dtype="int64", **more)


def data(*values: Any) -> dict[str, Any]:
    return {"init": "data", "init_args": list(values)}


def drawn(low: int, high: int) -> dict[str, Any]:
    return {"init": "randint", "init_args": {"low": low, "high": high}}


def V(*values: Any) -> list[dict[str, Any]]:
    return [{"value": value} for value in values]


IDS = {"shape": [1, 3], "dtype": "int64", "init": "data", "init_args": [[1, 50256, 300]]}
LINEAR, VIEW, CONV = "torch.nn.functional.linear", "torch.Tensor.view", "torch.nn.functional.conv2d"


@pytest.mark.parametrize(
    ("op", "inputs", "wanted", "became"),
    [
        (LINEAR, [T(2, 16, 4096), T(11008, 4096)], [T(2, 16, 64), T(64, 64)], {4096: 64, 11008: 64}),
        (VIEW, [T(1, 11, 4096), *V(1, 11, 32, 128)], [T(1, 11, 64), *V(1, 11, 32, 2)], {4096: 64}),
        (VIEW, [T(1, 11, 4096), *V(1, 11, 32, -1)], [T(1, 11, 64), *V(1, 11, 32, -1)], {4096: 64}),
        (CONV, [T(1, 3, 224, 224), T(64, 3, 7, 7), *V(None, 2, 3)],
         [T(1, 3, 56, 56), T(64, 3, 7, 7), *V(None, 2, 3)], {224: 56}),
        (CONV, [T(1, 512, 28, 28), T(512, 1, 3, 3), *V(None, 1, 1, 1, 512)],
         [T(1, 64, 28, 28), T(64, 1, 3, 3), *V(None, 1, 1, 1, 64)], {512: 64}),
        ("torch.Tensor.split", [T(2, 11, 2304), *V(768, 2)], [T(2, 11, 48), *V(16, 2)], {2304: 48}),
        ("torch.getitem", [T(2, 11, 128), {"py": "(..., slice(None, 64, None))"}],
         [T(2, 11, 64), {"py": "(..., slice(None, 32, None))"}], {128: 64}),
        ("torch.nn.functional.layer_norm", [T(2, 4096), {"py": "(4096,)"}, T(4096)],
         [T(2, 64), {"py": "(64,)"}, T(64)], {4096: 64}),
        ("torch.nn.functional.embedding", [{"tensor": IDS}, T(50257, 768)],
         [{"tensor": {**IDS, "init_args": [[1, 28, 10]]}}, T(29, 64)], {50257: 29, 768: 64}),
        (LINEAR, [T(2, 1021), T(1021, 1021)], [T(2, 61), T(61, 61)], {1021: 61}),
        ("torch.arange", V(4096), V(64), {4096: 64}),
        ("torch.abs", [T(64, 8)], [T(64, 8)], {}),
    ],
)  # fmt: skip
def test_sizes_are_divided_together(op: str, inputs: Any, wanted: Any, became: dict[int, int]) -> None:
    entry, sizes = shrink_entry({"op": op, "inputs": inputs}, 64)
    assert entry["inputs"] == wanted
    assert sizes == became


def test_lists_and_keywords_are_divided_too() -> None:
    lists = {
        "op": "torch.cat",
        "inputs": [{"tensor_list": [T(2, 512)["tensor"], T(2, 1536)["tensor"]]}],
        "kwmap": {"dim": -1},
    }
    entry, _ = shrink_entry(lists, 64)
    assert [each["shape"] for each in entry["inputs"][0]["tensor_list"]] == [[2, 16], [2, 48]]
    mask = {"tensor": {"shape": [1, 1, 512, 512], "dtype": "bool"}}
    inputs = [T(1, 32, 512, 128), T(1, 8, 512, 128), T(1, 8, 512, 128)]
    attention = {"op": "torch.nn.functional.scaled_dot_product_attention", "inputs": inputs}
    entry, _ = shrink_entry({**attention, "kwmap": {"enable_gqa": True, "attn_mask": mask}}, 64)
    assert [each["tensor"]["shape"] for each in entry["inputs"]] == [[1, 32, 64, 64], [1, 8, 64, 64], [1, 8, 64, 64]]
    assert entry["kwmap"]["attn_mask"]["tensor"]["shape"] == [1, 1, 64, 64]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"shape": [2, 1024], "stride": [3072, 1], "storage_offset": 1024},
         {"shape": [2, 64], "stride": [192, 1], "storage_offset": 64}),
        ({"shape": [1024, 2], "stride": [1, 1024]}, {"shape": [64, 2], "stride": [1, 64]}),
        ({"shape": [4, 1024], "stride": [0, 1]}, {"shape": [4, 64], "stride": [0, 1]}),
        ({"shape": [1024, 4], "stride": [8, 2]}, {"shape": [64, 4], "stride": [8, 2]}),
        ({"shape": [3, 1024], "storage_offset": 2048}, {"shape": [3, 64], "storage_offset": 128}),
    ],
)  # fmt: skip
def test_the_layout_stays_of_its_kind(before: dict[str, Any], after: dict[str, Any]) -> None:
    entry, _ = shrink_entry({"op": "torch.abs", "inputs": [{"tensor": {**before, "dtype": "float32"}}]}, 64)
    assert entry["inputs"] == [{"tensor": {**after, "dtype": "float32"}}]


def test_what_cannot_be_made_is_never_written() -> None:
    """Every step is a call that torch accepts, whatever the sizes."""
    found, _ = shrink_entry({"op": VIEW, "inputs": [T(96, 97), *V(97, 96)]}, 16)
    tensor, *sizes = found["inputs"]
    torch.empty(tensor["tensor"]["shape"]).view(*(each["value"] for each in sizes))


@pytest.mark.parametrize(
    ("op", "inputs", "places"),
    [
        ("max_unpool2d", [T(2, 4, 16, 16), I(2, 4, 16, 16, **drawn(0, 1024)), *V([32, 32])], 256),
        ("nll_loss2d_forward", [T(4, 9, 1, 11), I(4, 1, 11, **drawn(0, 9)), *V(None, 0, -100)], 8),
    ],
)
def test_positions_stay_within_shrunk_plane(op: str, inputs: list[dict[str, Any]], places: int) -> None:
    made, _ = shrink_entry({"op": f"torch.ops.aten.{op}.default", "inputs": inputs}, 8)
    assert made["inputs"][1]["tensor"]["init_args"] == {"low": 0, "high": places}


def test_candidate_is_tried_with_its_fill() -> None:
    """Positions of an embedding lie within it."""
    inputs = [I(40, **drawn(3, 900)), T(1000, 64)]
    entry, _ = shrink_entry({"op": "torch.nn.functional.embedding", "inputs": inputs}, 8)
    assert entry["inputs"][1] == T(8, 8)


HALF = T(6, 33, dtype="complex64")
KEPT_MASK = {"tensor": {"shape": [200], "dtype": "bool", **data(*[1] * 70, *[0] * 130)}}
OFFSETS = [I(40, **drawn(0, 64)), T(64, 64, init="randn"), I(20, **data(*range(0, 40, 2)))]


@pytest.mark.parametrize(
    ("op", "limit", "inputs", "wanted", "became"),
    [
        # values of a tensor that is divided become random
        ("abs", 16, [I(60, **data(*range(5, 65)))], [I(15, **drawn(5, 65))], {60: 15}),
        # integers without elements are filled as integers are
        ("neg", 64, [I(0, 4096, **data())], [I(0, 64)], {4096: 64}),
        # positions of a slice that are not divided with the size would lie behind its end
        ("ops.aten.slice.Tensor", 8, [T(32, 64), *V(0, 12, 16)], [T(16, 8), *V(0, 12, 16)], {32: 16, 64: 8}),
        # a matrix of one number could not be inverted
        ("linalg.inv", 8, [T(64, 64)], [T(8, 8)], {64: 8}),
        # a mask that fits the values, and offsets
        ("setitem", 64, [T(200), KEPT_MASK, T(70)], [T(200), KEPT_MASK, T(70)], {}),
        ("nn.functional.embedding_bag", 16, OFFSETS, OFFSETS, {}),
        # torch tells the size of this transform from its last argument alone; the kernel asks for half of it and one
        ("ops.aten._fft_c2r.default", 8, [HALF, *V([1], 2, 64)], [HALF, *V([1], 2, 64)], {}),
    ],
)
def test_sizes_stay_legal(op: str, limit: int, inputs: Any, wanted: Any, became: dict[int, int]) -> None:
    entry = {"op": f"torch.{op}", "inputs": inputs}
    assert shrink_entry(entry, limit) == ({**entry, "inputs": wanted}, became)


@pytest.mark.parametrize("more", [{}, data([1, 0, 1], [1, 0, 1])])
@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "complex64"])
def test_expanded_layout_is_tried(kind: str, more: dict[str, Any]) -> None:
    repeated = {"tensor": {"shape": [2, 3], "dtype": kind, "stride": [0, 1], **more}}
    entry, became = shrink_entry({"op": "torch.add", "inputs": [repeated, T(64, 2, 3)]}, 8)
    assert (entry["inputs"], became) == ([repeated, T(8, 2, 3)], {64: 8})
