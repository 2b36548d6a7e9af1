"""Operators that copy, repeat or fill: clone, broadcast_to, tile, tril, triu, zeros_like and ones_like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from optest.operators.calls import LARGE_SIZE, MILLION, Call, call
from optest.operators.derived_samples import further_layouts
from optest.operators.describe import EVERY, attribute, in_module, movement
from optest.operators.movement.helpers import MOVED, SOME, movement_samples
from optest.operators.samples import in_every_layout, of_one_element, variations
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, require_dimensions, require_spec
from optest.spec import OperatorDescriptor, Sample, UnfitArguments

_FILLED = movement("one value everywhere, for any input")
_DIAGONAL = attribute(
    "diagonal: int = 0", "Diagonal at the border of the triangle; positive ones are above the main diagonal."
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="broadcast_to",
        aliases=("expand",),
        attributes=(attribute("size|shape: ints", "The new sizes; -1 keeps a size."),),
        description="Dimensions of size 1 are repeated, and new ones added in front; one-way, unlike ONNX Expand.",
    ),
    OperatorDescriptor(
        name="tile",
        aliases=("Tile: input -> output",),
        attributes=(attribute("dims|repeats: ints", "Number of repetitions of each dimension."),),
        description="The whole tensor is repeated; the shorter of shape and dims gets ones in front.",
    ),
    OperatorDescriptor(
        name="tril",
        attributes=(_DIAGONAL,),
        description="The lower triangle of the last two dimensions; +0 above it, also in place of NaN.",
    ),
    OperatorDescriptor(
        name="triu",
        attributes=(_DIAGONAL,),
        description="The upper triangle of the last two dimensions; +0 below it, also in place of NaN.",
    ),
    OperatorDescriptor(
        name="clone",
        aliases=("rearrange", "contiguous", "Identity: input -> output"),
        infer="..shapes:infer_same",
        description="A copy, from one layout in memory to another; dense unless another layout is requested.",
    ),
    OperatorDescriptor(
        name="zeros_like",
        aliases=("zeros",),
        infer="..shapes:infer_same",
        samples="like_samples",
        rule=_FILLED,
        description="Zeros (+0) in the shape and dtype of input, which is not read.",
    ),
    OperatorDescriptor(
        name="ones_like",
        aliases=("ones",),
        infer="..shapes:infer_same",
        samples="like_samples",
        rule=_FILLED,
        description="Ones in the shape and dtype of input, which is not read.",
    ),
    twin="movement_reference",
    dtype_variants=EVERY,
    rule=MOVED,
)


def infer_broadcast_to(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec; sizes are aligned at the end, and -1 keeps the input's size of a dimension."""
    spec = require_spec(specs, 0, "input")
    size: Shape = attributes["size"]
    added = len(size) - spec.rank
    if added < 0:
        raise UnfitArguments(f"size is {list(size)}, expected {spec.rank} entries or more, as input")
    shape = []
    for position, requested in enumerate(size):
        present = spec.shape[position - added] if position >= added else None
        # -1 of a new leading dimension has no size to keep.
        if present is not None and requested in (-1, present):
            shape.append(present)
        elif requested < 0 or present not in (None, 1):
            expected = "0 or more" if present is None else f"{present} or -1" if present != 1 else "0 or more, or -1"
            raise UnfitArguments(f"size at dimension {position} is {requested}, expected {expected}")
        else:
            shape.append(requested)
    return (dense(spec.dtype, tuple(shape)),)


def infer_tile(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    sizes, repeats = padded_repeats(spec.shape, attributes["dims"])
    return (dense(spec.dtype, tuple(size * count for size, count in zip(sizes, repeats, strict=True))),)


def padded_repeats(shape: Shape, dims: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """Return shape and repeats, the shorter of them preceded by ones, as in torch.tile.

    Raises:
        UnfitArguments: for a negative count.
    """
    if any(count < 0 for count in dims):
        raise UnfitArguments(f"dims is {list(dims)}, expected counts of 0 or more")
    rank = max(len(shape), len(dims))
    return (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(dims)) + tuple(dims)


def infer_tril(specs: Specs, _attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    require_dimensions(spec, "input", 2)
    return (dense(spec.dtype, spec.shape),)


infer_triu = infer_tril


def clone_samples() -> Iterator[Sample]:
    like = list(like_samples())
    yield from (*like, *further_layouts(like))
    ranks = [call(input=(2, 3, 2, 4, 3)), call(input=(2, 1, 3, 1, 2, 2)), call(input=(33, 65))]
    yield from variations("ordinary", ranks, dtypes=SOME)
    ends = [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]  # random integers have only 63 bits
    yield from variations("special", [call(input=(7,), generator={"fill": "data", "values": ends})], dtypes=("uint64",))
    yield from in_every_layout([call(input=(2, 3, 9, 7), dtypes=("int8",))])
    # A stride of 0 repeats rows; the copy must be dense.
    repeated = {"shape": [3, 5, 17], "strides": [17, 0, 1]}
    deep = {"shape": [2, 3, 2, 4, 3], "strides": [1, 2, 24, 6, 48]}
    yield from variations("layouts", [call(input=repeated), call(input=deep)], dtypes=SOME)


def like_samples() -> Iterator[Sample]:
    """Yield the case sets of operators without attributes whose output has the shape and dtype of input."""
    calls = [call(input=(3, 5, 17)), call(input=(2, 3, 9, 7)), call(input=(1, 7))]
    yield from movement_samples(calls, lambda n: call(input=(3, n)), (), (), large=[call(input=MILLION)])
    ranks = [call(input=()), call(input=(0,)), call(input=(2, 0, 3)), call(input=(2, 3, 2, 1, 4, 3))]
    yield from variations("sizes", ranks, dtypes=SOME)


def broadcast_to_samples() -> Iterator[Sample]:
    # Every position of a repeated dimension, several at once, none, and new dimensions.
    pairs: list[tuple[tuple[int, ...], list[int]]] = [
        ((1, 5), [3, 5]),
        ((3, 1), [3, 5]),
        ((1, 1), [3, 5]),
        ((5,), [3, 5]),
        ((3, 1), [2, 3, 5]),
        ((1, 3, 1, 5), [2, 3, 4, 5]),
        ((1, 5, 1), [3, 5, 4]),
        ((3, 1), [-1, 4]),
        ((3, 5), [2, -1, -1]),
        ((), [2, 3]),
        ((), []),
        ((1,), [0]),
        ((1, 3), [0, 3]),
        ((3, 1), [3, 1]),
        ((5,), [5, 5]),  # rows, not columns
        ((3, 3), [3, 3, 3]),
        ((2, 1, 3, 1, 5), [2, 3, 3, 4, 5]),
        ((2, 1, 3, 1), [2, 4, 3, 5]),
        ((2, 1, 3), [2, 1, 2, 2, 4, 3]),
        ((1,), [5000]),
    ]
    yield from movement_samples(
        [call({"size": [4, 3, 37]}, input=(3, 37)), call({"size": [5, 17]}, input=(5, 1))],
        lambda n: call({"size": [3, n]}, input=(1, n)),
        [*(call({"size": size}, input=shape) for shape, size in pairs), call({"size": [3, 129]}, input=(3, 1))],
        [
            call({"size": [3, 4]}, input=(3, 2)),
            call({"size": [4]}, input=(3, 4)),
            call({"size": [-1, 3, 4]}, input=(3, 4)),
        ],
        large=[call({"size": list(MILLION)}, input=(17,))],
    )


def tile_samples() -> Iterator[Sample]:
    pairs: list[tuple[tuple[int, ...], list[int]]] = [
        ((3, 5), [1, 2]),
        ((3, 5), [2, 1]),
        ((3, 5), [2]),
        ((3, 5), []),
        ((5,), [2, 3]),
        ((2, 3, 4), [3, 1, 2]),
        ((), [3]),
        ((3, 5), [1, 0]),
        ((0, 3), [2, 2]),
        ((2, 1, 3), [2, 2, 1, 1]),
        ((2, 3, 2, 5, 2), [1, 2, 1, 2, 2]),
        ((5,), [3]),
        ((2, 3, 1, 4), [2, 3, 2, 2]),
    ]
    yield from movement_samples(
        [call({"dims": [2, 3]}, input=(5, 17)), call({"dims": [2, 1, 2]}, input=(3, 4, 5))],
        lambda n: call({"dims": [2, 2]}, input=(2, n)),
        [call({"dims": dims}, input=shape) for shape, dims in pairs],
        [call({"dims": [-1]}, input=(3,)), call({"dims": [2, -2]}, input=(3, 4))],
        large=[call({"dims": [2, 1]}, input=(40_000, 17))],
    )


def _triangle_samples(sized: Callable[[int], Call]) -> Iterator[Sample]:
    """Yield the case sets of tril or triu; `sized(n)` keeps almost every element."""
    shapes = ((4, 4), (3, 6), (6, 3))
    yield from movement_samples(
        [call(input=(17, 19)), call({"diagonal": 1}, input=(2, 5, 7))],
        sized,
        [
            *(call({"diagonal": diagonal}, input=shape) for shape in shapes for diagonal in (-7, -2, -1, 1, 2, 7)),
            call({"diagonal": 4}, input=(3, 6)),
            call({"diagonal": -4}, input=(6, 3)),
            call({"diagonal": 2}, input=(2, 3, 4, 5)),
            call({"diagonal": 1}, input=(33, 33)),
            call(input=(129, 129)),
            call(input=(129, 3)),
            call(input=(3, 0)),
            call(input=(0, 4, 4)),
            call(input=(2, 1, 2, 4, 5)),
        ],
        [call(input=(5,)), call(input=())],
        large=[call(input=(LARGE_SIZE, 3))],
    )
    yield from of_one_element(
        call(input=(1, 1)), call({"diagonal": 1}, input=(1, 1)), call({"diagonal": -1}, input=(1, 1))
    )


tril_samples = partial(_triangle_samples, lambda n: call({"diagonal": n - 2}, input=(3, n)))
triu_samples = partial(_triangle_samples, lambda n: call({"diagonal": -1}, input=(3, n)))
