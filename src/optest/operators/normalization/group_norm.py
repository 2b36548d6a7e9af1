"""Operators that normalise channels: group_norm and batch_norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, SIZES, Call, call, normal, reshaped, uniform, without
from optest.operators.describe import FLOAT32_PARAMETERS, FLOATS, attribute, composed, in_module
from optest.operators.normalization.helpers import EPS, filled, of_rows, of_weight_and_bias
from optest.operators.samples import (
    error_samples,
    in_every_layout,
    of_one_element,
    standard_samples,
    variations,
    zero_mean,
)
from optest.operators.shapes import Attributes, Outputs, Specs, optional_spec, require_dimensions, require_spec
from optest.spec import Interval, OperatorDescriptor, Sample, TensorSpec, UnfitArguments, format_shape
from optest.spec.declared_shapes import match_declaration

_FLOAT32_CHANNELS = tuple((half, *("float32",) * count) for half in ("float16", "bfloat16") for count in (1, 2, 3, 4))

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="group_norm",
        signature="input, weight?, bias? -> out",
        aliases=("GroupNormalization: X, scale?, bias? -> Y",),
        attributes=(attribute("num_groups: int", "Number of groups of neighbouring channels (dimension 1)."), EPS),
        dtype_variants=(*FLOATS, *FLOAT32_PARAMETERS),
        sum_length="terms_of_groups",
        rule=composed("|w|·((4√n·mean|x| + |x| + 4|mean|)·r + |z|·(2√n + 2κ + 9)) + |b| + |y|"),
        description="(x − mean) / √(variance + eps) over each group of each sample, · weight + bias by channel.",
    ),
    OperatorDescriptor(
        name="batch_norm",
        signature="input, running_mean?, running_var?, weight?, bias? -> out",
        attributes=(
            attribute(
                "training: bool = False",
                "Normalise by the mean and the biased variance of the batch; the running statistics, if given, "
                "are not changed.",
            ),
            EPS,
        ),
        dtype_variants=(*FLOATS, *_FLOAT32_CHANNELS),
        sum_length="terms_of_channels",
        domain={"running_var": Interval(low=0.0)},
        rule=composed("|w|·(6|z| + (|x| + 2|running_mean|)·r) + |b| + |y|; in training as group_norm"),
        description="(x − running_mean) / √(running_var + eps) · weight + bias by channel, which is dimension 1.",
    ),
    twin="norms_reference",
)


# weight and bias may be float32 for 16-bit inputs, as frameworks keep them.
_INPUT, _PARAMETER, _OUTPUT = "input: T[batch, channels, *rest]", "T|float32[channels]", "T[batch, channels, *rest]"


def infer_group_norm(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output, of the input's shape; refuse groups that do not divide the channels or that have one value."""
    spec = require_spec(specs, 0, "input")
    channels, groups = _channels_of_input(spec), attributes["num_groups"]
    if groups < 1 or channels % groups:
        raise UnfitArguments(f"num_groups is {groups}, expected a divisor of {channels}, the channels of input")
    # The variance of a single value is 0; torch refuses it, too.
    if spec.elements == groups:
        raise UnfitArguments(f"a group of input {format_shape(spec.shape)} has 1 value, expected 2 or more")
    return match_declaration(specs, f"{_INPUT}, weight?: {_PARAMETER}, bias?: {_PARAMETER} -> {_OUTPUT}")[1]


def infer_batch_norm(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output, of the input's shape, without statistics.

    Refuse one of running_mean and running_var without the other, neither unless ``training``, an eps below 0 (and 0 in
    training), and channels of one value in training.
    """
    spec = require_spec(specs, 0, "input")
    channels, eps = _channels_of_input(spec), attributes.get("eps", 1e-5)
    if eps < 0 or (eps == 0 and attributes.get("training")):
        raise UnfitArguments(f"eps is {eps:g}, expected 0 or more (above 0 in training)")
    # Kernels read both or neither.
    statistics = [optional_spec(specs, index) for index in (1, 2)]
    if (statistics[0] is None) != (statistics[1] is None):
        raise UnfitArguments("one of running_mean and running_var is missing, expected both or neither")
    if attributes.get("training"):
        if spec.elements and spec.elements == channels:
            raise UnfitArguments(f"a channel of input {format_shape(spec.shape)} has 1 value, expected 2 or more")
    elif statistics[0] is None:
        raise UnfitArguments("running_mean and running_var are missing, expected both unless training is true")
    parameters = [f"{name}?: {_PARAMETER}" for name in ("running_mean", "running_var", "weight", "bias")]
    return match_declaration(specs, f"{_INPUT}, {', '.join(parameters)} -> {_OUTPUT}")[1]


def terms_of_channels(specs: Specs, attributes: Attributes) -> int:
    """Return the number of values of a channel, which training sums; else 1."""
    spec = require_spec(specs, 0, "input")
    return spec.elements // max(_channels_of_input(spec), 1) if attributes.get("training") else 1


def terms_of_groups(specs: Specs, attributes: Attributes) -> int:
    """Return the number of values of a group, which the mean sums."""
    spec = require_spec(specs, 0, "input")
    return spec.elements // max(spec.shape[0] * attributes["num_groups"], 1) if spec.rank else 1


def _channels_of_input(spec: TensorSpec) -> int:
    """Return the size of dimension 1; raise UnfitArguments without one."""
    require_dimensions(spec, "input", 2)
    return spec.shape[1]


def group_norm_samples() -> Iterator[Sample]:
    def group_norm(groups: int, *shape: int, **attributes: Any) -> Call:
        channels = shape[1]
        return call({"num_groups": groups, **attributes}, input=shape, weight=(channels,), bias=(channels,))

    calls = [
        group_norm(2, 2, 6, 5),
        group_norm(3, 2, 6, 3, 5),
        group_norm(1, 3, 4, 7),
        group_norm(4, 2, 4, 9),
        group_norm(2, 4, 8),
    ]
    yield from standard_samples(calls, FLOATS, sized=lambda n: group_norm(2, 2, 4, n), special=False)
    yield from of_weight_and_bias(calls)
    for groups in (1, 2, 3, 4, 6, 12):
        yield from variations("attributes", [group_norm(groups, 2, 12, 3, 2), group_norm(groups, 2, 12, 1)])
    yield from variations("attributes", [group_norm(3, 2, 6, 2, 3, 2)], dtypes=("float32",))

    def rows_of(rows: Sequence[int], width: int, **attributes: Any) -> Call:
        return group_norm(rows[0], 1, rows[0], width, **attributes)

    yield from of_rows(rows_of)
    yield from variations("long", [group_norm(1, LARGE_SIZE, 2, 1)], dtypes=("float32",))
    yield from variations("empty", [group_norm(2, 0, 4, 3), group_norm(2, 2, 4, 0)])
    yield from in_every_layout([group_norm(3, 2, 6, 3, 5)], names=("input",))
    yield from error_samples(
        call({"num_groups": 4}, input=(2, 6, 3)),
        call({"num_groups": 0}, input=(2, 6, 3)),
        call({"num_groups": 2}, input=(2, 6, 3), weight=(3,)),
        call({"num_groups": 2}, input=(2, 6, 3), weight=(6,), bias=(2,)),
        call({"num_groups": 1}, input=(6,)),
        call({"num_groups": 6}, input=(1, 6)),
    )
    # Planes whose size is no multiple of a vector width.
    wide = [group_norm(3, 2, 6, 9, 11), group_norm(2, 1, 4, 13, 5)]
    yield from variations("attributes", wide, dtypes=("float32", "float16"))


def batch_norm_samples() -> Iterator[Sample]:
    calls = [
        _batch_norm_call(3, 5, 7),
        _batch_norm_call(2, 3, 4, 5),
        _batch_norm_call(6, 5),
        _batch_norm_call(2, 17, 3, 2, 2),
    ]
    # torch refuses weights without channels; a size of 0 of other dimensions follows in the set empty.
    yield from standard_samples(
        calls, FLOATS, sized=lambda n: _batch_norm_call(2, n, 3), sizes=SIZES[1:], special=False
    )
    for half in ("float16", "bfloat16"):
        mixed = {**calls[0], "dtypes": [half, *["float32"] * 4]}
        yield from variations(
            "dtypes", [mixed, without(mixed, "bias"), without(mixed, "weight"), without(mixed, "weight", "bias")]
        )
    some = [without(calls[0], "bias"), without(calls[0], "weight"), without(calls[1], "weight", "bias")]
    yield from variations("attributes", some, dtypes=MAIN_FLOATS)
    yield from in_every_layout([calls[1]], names=("input",))
    # eps far above, near and far below the running variance; a variance of 0.
    for largest, eps in ((1e-4, 1e-5), (1e-6, 1e-3), (1e-2, 0.5), (1e-3, 1e-6), (1e-3, 0.0)):
        fills = {"running_var": uniform(0.0, largest)}
        case = {**_batch_norm_call(2, 9, 5, eps=eps), "generator": fills}
        yield from variations("epsilon", [case], dtypes=MAIN_FLOATS)
    yield from variations(
        "epsilon", [{**calls[0], "generator": {"running_var": {"fill": "zeros"}}}], dtypes=MAIN_FLOATS
    )
    large = {"input": normal(1000.0, 1.0), "running_mean": normal(1000.0, 1.0)}
    yield from variations("mean beside std", [{**calls[0], "generator": large}], dtypes=("float32", "bfloat16"))
    yield from _in_training()
    # NaN and infinity must stay in their channel.
    odd = [[["nan", 1.0], [2.0, 3.0]], [["inf", "-inf"], [0.0, -0.0]], [[1.0, 2.0], [3.0, 4.0]]]
    special = {**_batch_norm_call(3, 2, 2), "generator": {"input": {"fill": "data", "values": odd}}}
    yield from variations("special", [special], dtypes=MAIN_FLOATS)
    yield from variations(
        "special", [{**_batch_norm_call(4, 9, 5), "generator": {"input": {"fill": "special"}}}], dtypes=MAIN_FLOATS
    )
    yield from variations("long", [_batch_norm_call(2, 3, 65536), _batch_norm_call(2, 4097, 3)], dtypes=MAIN_FLOATS)
    yield from variations("long", [_batch_norm_call(LARGE_SIZE, 3)], dtypes=("float32",))
    yield from variations("empty", [_batch_norm_call(0, 3), _batch_norm_call(2, 3, 0)])
    yield from variations("sizes", [_batch_norm_call(4, 3, 1), _batch_norm_call(2, 3, 5, 1)], dtypes=("float32",))
    yield from of_one_element(_batch_norm_call(1, 1), _batch_norm_call(1, 1, 1))
    shapes: dict[str, Any] = {"running_mean": (4,), "running_var": (4,)}
    yield from error_samples(
        call(input=(3, 4)),
        call(input=(3, 4), running_mean=(4,)),
        call(input=(3, 4), running_mean=(3,), running_var=(4,)),
        call(input=(3, 4), **shapes, weight=(3,)),
        call(input=(3, 4), **shapes, weight=(4,), bias=(1,)),
        call({"training": True}, input=(1, 4)),
        call({"eps": -1.0}, input=(3, 4), **shapes),
    )
    # Strides of channels last.
    last = {"shape": [2, 3, 4, 5], "strides": [60, 1, 15, 3]}
    for training in (False, True):
        images = _batch_norm_call(2, 3, 4, 5, training=training)
        # Channels last: kernels have a separate path for this layout.
        laid = reshaped(images, input=last)
        yield from variations("layouts", [laid], dtypes=("float16",))


def _batch_norm_call(*shape: int, **attributes: Any) -> Call:
    """Return a batch_norm call for input of `shape`, with all parameters."""
    of_channel = (shape[1],)
    return call(
        attributes, input=shape, running_mean=of_channel, running_var=of_channel, weight=of_channel, bias=of_channel
    )


def _in_training() -> Iterator[Sample]:
    """Yield calls in training mode, without and with running statistics."""

    def batch(*shape: int, **attributes: Any) -> Call:
        return without(_batch_norm_call(*shape, training=True, **attributes), "running_mean", "running_var")

    calls = [batch(5, 7, 3), batch(4, 3, 5, 6), batch(9, 5), batch(7, 7)]
    yield from variations("attributes", calls, dtypes=MAIN_FLOATS)
    yield from variations("attributes", [without(calls[0], "weight", "bias")], dtypes=MAIN_FLOATS)
    yield from variations("attributes", [_batch_norm_call(5, 7, 3, training=True)], dtypes=MAIN_FLOATS)
    yield from in_every_layout([batch(3, 4, 5)], names=("input",))
    for std, eps in ((1e-3, 1e-5), (0.5, 0.1)):
        yield from variations("epsilon", [filled(batch(9, 4, 7, eps=eps), normal(0.0, std))], dtypes=MAIN_FLOATS)
    yield from variations("mean beside std", [filled(batch(33, 4, 7), normal(1000.0, 1.0))], dtypes=("float32",))
    yield from variations("mean beside std", [filled(batch(33, 4, 7), normal(-300.0, 2.0))], dtypes=MAIN_FLOATS)
    yield from variations("long", [batch(2, 3, 32768)], dtypes=MAIN_FLOATS)
    yield from variations("long", [batch(4097, 3)], dtypes=("float32",))
    yield from zero_mean([batch(16, 3, 257), batch(257, 9)])
