"""The operator rope (rotary position embedding): descriptor, shape inference and samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, call
from optest.operators.describe import FLOATS, accumulate, attribute, in_module
from optest.operators.samples import error_samples, in_every_layout, integer_exact, standard_samples, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Shape,
    Specs,
    first_size,
    index_range,
    optional_spec,
    require_dimensions,
    require_spec,
)
from optest.spec import Interval, OperatorDescriptor, Sample, TensorSpec, UnfitArguments, format_shape
from optest.spec.declared_shapes import match_declaration

_INDICES = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
_POSITIONS = tuple((name, name, name, index) for name in EVERY_FLOAT for index in _INDICES)
# Libraries keep cos and sin in float32 for 16-bit inputs.
_WIDE_TABLES = tuple(
    (half, "float32", "float32", *index)
    for half in ("float16", "bfloat16")
    for index in ((), *((name,) for name in _INDICES))
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="rope",
        signature="input, cos, sin, position_ids? -> out",
        aliases=("RotaryEmbedding: X, cos_cache, sin_cache, position_ids? -> Y",),
        attributes=(
            attribute(
                "interleaved: bool = False",
                "Pairs are neighbours (2i, 2i + 1), as in GPT-J; else those of the halves (i, i + n/2), as "
                "in GPT-NeoX and Llama.",
            ),
            attribute(
                "rotary_embedding_dim: int = 0",
                "Number of elements of each vector that are rotated, from the first one on; 0 means all.",
            ),
        ),
        dtype_variants=(*FLOATS, *_POSITIONS, *_WIDE_TABLES),
        sum_length="rope_length",
        domain="positions_domain",
        rule=accumulate("terms are the two products"),
        description="Rotates pairs of each vector: (x₁·cos − x₂·sin, x₂·cos + x₁·sin). input is (…, S, D); cos and sin "
        "have half the rotated size, and a row for each position of the sequence (S, or batch × S), or are tables that "
        "position_ids (S, or batch × S) index. They are inputs, as in every kernel library: float32 cannot represent "
        "the angles of large positions. 16-bit outputs are computed in float32 and rounded once.",
    ),
)


def infer_rope(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    require_dimensions(spec, "input", 2)
    # cos and sin have one column per pair.
    half = rotated_size(spec, attributes) // 2
    tables = "cos: T|float32[*rows, half_of_rotated], sin: T|float32[*rows, half_of_rotated]"
    declared = f"input: T[*shape], {tables}, position_ids?: [*positions] -> T[*shape]"
    n, outputs = match_declaration(specs, declared, half_of_rotated=half)
    # Without position_ids the rows of cos and sin are positions; with them cos and sin are tables.
    if optional_spec(specs, 3) is None:
        _require_rows("cos", n.rows, spec)
        return outputs
    if len(n.rows) != 1 or not n.rows[0]:
        raise UnfitArguments(
            f"cos is {format_shape((*n.rows, half))}, expected a table of rows x {half}, as position_ids is given"
        )
    _require_rows("position_ids", n.positions, spec)
    return outputs


def rotated_size(spec: TensorSpec, attributes: Attributes) -> int:
    """Return the number of rotated elements of a vector; raise UnfitArguments unless it is even and fits."""
    size = attributes.get("rotary_embedding_dim", 0) or spec.shape[-1]
    if size % 2 or not 0 < size <= spec.shape[-1]:
        raise UnfitArguments(f"{size} elements are rotated, expected an even number up to {spec.shape[-1]}")
    return size


def _require_rows(name: str, shape: Shape, spec: TensorSpec) -> None:
    """Raise UnfitArguments unless `shape` is one row per position, for all batches or for each batch."""
    length = spec.shape[-2]
    allowed = [(length,), *([(spec.shape[0], length)] if spec.rank > 2 else [])]
    if shape not in allowed:
        listed = " or ".join(map(format_shape, allowed))
        raise UnfitArguments(f"{name} has {format_shape(shape)} rows, expected {listed}, as input")


def rope_length(_specs: Specs, _attributes: Attributes) -> int:
    """Return the number of terms of an output: its two products."""
    return 2


def positions_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of positions: the rows of the tables."""
    return {"position_ids": index_range(first_size(specs, 1))}


def rope_samples() -> Iterator[Sample]:
    calls = [
        call(input=(1, 2, 5, 8), cos=(5, 4), sin=(5, 4)),
        call({"interleaved": True}, input=(2, 3, 7, 16), cos=(7, 8), sin=(7, 8)),
        call(input=(2, 3, 7, 64), cos=(2, 7, 32), sin=(2, 7, 32)),
    ]
    yield from standard_samples(
        calls,
        FLOATS,
        sized=lambda n: call({"interleaved": n % 2 == 0}, input=(1, 2, 3, 2 * n), cos=(3, n), sin=(3, n)),
        sizes=(1, 2, 3, 8, 15, 16, 17, 32, 33, 64, 65, 128, 129, 320),
    )
    lengths = [call(input=(1, 2, n, 8), cos=(n, 4), sin=(n, 4)) for n in (0, 1, 15, 17, 65, 1025, 65_537)]
    yield from variations("sizes", lengths[:-1], dtypes=("float32",))
    large = [call(input=(2, 4, 129, 66), cos=(129, 33), sin=(129, 33)), lengths[-1]]
    large.append(call(input=(1, 9, 17, 8), cos=(17, 4), sin=(17, 4)))
    large.append(call(input=(65_537, 1, 2), cos=(1, 1), sin=(1, 1)))
    # Equal numbers of heads and positions: shapes do not reveal swapped dimensions.
    large.append(call(input=(5, 5, 8), cos=(5, 4), sin=(5, 4)))
    yield from variations("sizes", large, dtypes=("float32",))
    yield from variations("attributes", _rope_attributes(), dtypes=MAIN_FLOATS)
    yield from variations("positions", _rope_positions())
    with_positions = [case for case in _rope_positions() if case["shapes"]["position_ids"] == [2, 5]]
    yield from variations("ordinary", [*with_positions[:2], *_rope_positions()][:3])
    yield from in_every_layout(with_positions[:1])
    yield from variations("positions", _far_positions())
    # The same forms with positions: partly rotated vectors, no heads, long sequences.
    forms = [
        call(part, input=(2, 3, 5, 8), cos=(33, 3), sin=(33, 3), position_ids=(2, 5), dtypes=_INDEXED_DTYPES)
        for part in ({"interleaved": interleaved, "rotary_embedding_dim": 6} for interleaved in (False, True))
    ]
    forms.append(call(input=(5, 8), cos=(33, 4), sin=(33, 4), position_ids=(5,), dtypes=_INDEXED_DTYPES))
    forms.append(call(input=(3, 5, 8), cos=(33, 4), sin=(33, 4), position_ids=(3, 5), dtypes=_INDEXED_DTYPES))
    forms.append(
        call(input=(2, 3, 129, 66), cos=(257, 33), sin=(257, 33), position_ids=(2, 129), dtypes=_INDEXED_DTYPES)
    )
    yield from variations("positions", forms, dtypes=("float32",))
    for half in ("float16", "bfloat16"):
        wide = [call({"interleaved": True}, input=(2, 3, 7, 16), cos=(7, 8), sin=(7, 8)), calls[2]]
        yield from variations("dtypes", ({**case, "dtypes": [half, "float32", "float32"]} for case in wide))
    yield from integer_exact(calls)
    yield from error_samples(
        call(input=(1, 2, 5, 7), cos=(5, 3), sin=(5, 3)),
        call(input=(1, 2, 5, 8), cos=(5, 8), sin=(5, 8)),
        call(input=(1, 2, 5, 8), cos=(6, 4), sin=(6, 4)),
        call(input=(1, 2, 5, 8), cos=(5, 4), sin=(4, 4)),
        call({"rotary_embedding_dim": 10}, input=(1, 2, 5, 8), cos=(5, 5), sin=(5, 5)),
        call(input=(1, 2, 5, 8), cos=(9, 4), sin=(9, 4), position_ids=(6,), dtypes=_INDEXED_DTYPES),
        call(input=(2, 3, 5, 8), cos=(9, 4), sin=(9, 4), position_ids=(3, 5), dtypes=_INDEXED_DTYPES),
    )


def _rope_attributes() -> Iterator[dict[str, Any]]:
    """Yield calls with either pairing, all sizes of the rotated part, and 2 or 3 dimensions."""
    for interleaved in (False, True):
        for size in (0, 2, 6, 8):
            half = (size or 8) // 2
            attributes = {"interleaved": interleaved, "rotary_embedding_dim": size}
            yield call(attributes, input=(2, 3, 5, 8), cos=(5, half), sin=(5, half))
        yield call({"interleaved": interleaved}, input=(5, 8), cos=(5, 4), sin=(5, 4))
        yield call({"interleaved": interleaved}, input=(3, 5, 8), cos=(3, 5, 4), sin=(3, 5, 4))


_INDEXED_DTYPES = ("float32", "float32", "float32", "int64")


def _far_positions() -> Iterator[dict[str, Any]]:
    """Yield positions that need every bit of the index dtype, or more than 16 bits."""
    # A kernel that reads the index as a narrower or a signed dtype selects other rows.
    rows = {"int8": 1 << 7, "uint8": 1 << 8, "int16": 1 << 15, "uint16": 1 << 16}
    for index in _INDICES:
        size = rows.get(index, LARGE_SIZE)
        positions = [size - 1, size // 2, 0, size // 2 - 1, size - 2]
        yield call(
            dtypes=["float32", "float32", "float32", index],
            generator={"position_ids": {"fill": "data", "values": positions}},
            input=(1, 2, 5, 4),
            cos=(size, 2),
            sin=(size, 2),
            position_ids=(5,),
        )


def _rope_positions() -> Iterator[dict[str, Any]]:
    """Yield calls with position_ids in all combinations of dtypes, pairing and shapes."""
    for dtype, tables, index in (
        ("float32", "float32", "int64"),
        ("float32", "float32", "int32"),
        ("float16", "float16", "int64"),
        ("bfloat16", "float32", "int64"),
        *(("float32", "float32", index) for index in ("int16", "int8", "uint8", "uint16", "uint32", "uint64")),
        ("bfloat16", "bfloat16", "uint8"),
        ("float64", "float64", "int32"),
    ):
        for interleaved in (False, True):
            for rows in ((5,), (2, 5)):
                yield call(
                    {"interleaved": interleaved},
                    dtypes=[dtype, tables, tables, index],
                    input=(2, 3, 5, 8),
                    cos=(33, 4),
                    sin=(33, 4),
                    position_ids=rows,
                )
