"""Descriptors, inference and samples of state space models: causal_conv1d, causal_conv1d_update, selective_scan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from optest.operators.calls import CALM_SIZES, EVERY_FLOAT, MAIN_FLOATS, call, reshaped, uniform, without
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs, require_rank, require_spec, required_inputs
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype, format_shape
from optest.spec.declared_shapes import match_declaration

_ACTIVATION = attribute("activation: str = None", "Activation of the result; swish is silu.", choices=("silu", "swish"))
_CONVOLVED = composed("running errors of the sum of width products and the bias; silu 4 ulp; 0 for the state")
_NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "initial_state")
_HALVES = ("float16", "bfloat16")
_FILTER = "weight: T[dim, width], bias?: T[dim]"


def _mixed_dtypes(half: str, names: Sequence[str], wide: Sequence[str] = ()) -> list[str]:
    """Return the dtypes of inputs with these names: float32 for parameters and names in ``wide``, else ``half``."""
    return ["float32" if name in ("A", "D", "delta_bias", "initial_state", *wide) else half for name in names]


def _half_variants() -> Iterator[tuple[str, ...]]:
    """Yield the 16-bit combinations of dtypes: constant B and C are float32, and optional inputs may be left out."""
    for half, *flags in product(_HALVES, *[(False, True)] * 6):
        wide = [name for name, is_wide in zip("BC", flags[:2], strict=True) if is_wide]
        names = [*_NAMES[:5], *(name for name, is_given in zip(_NAMES[5:], flags[2:], strict=True) if is_given)]
        yield tuple(_mixed_dtypes(str(half), names, wide))


DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="causal_conv1d",
        signature="x, weight, bias?, initial_states? -> out, final_states?",
        aliases=("causal_conv1d_fn",),
        attributes=(_ACTIVATION, attribute("return_final_states: bool = False", "Return final_states, too.")),
        dtype_variants=FLOATS,
        sum_length="width",
        rule=_CONVOLVED,
        description="Each channel of x, batch x dim x length, convolved with its row of weight, dim x width, as in "
        "causal-conv1d: out[t] is bias + Σ weight[k] · x[t − width + 1 + k], where initial_states, batch x dim x "
        "(width − 1), or zeros precede x. final_states are the last width − 1 elements of both together.",
    ),
    OperatorDescriptor(
        name="causal_conv1d_update",
        signature="x, conv_state, weight, bias? -> out, new_conv_state",
        attributes=(_ACTIVATION,),
        dtype_variants=FLOATS,
        sum_length="width",
        rule=_CONVOLVED,
        description="causal_conv1d of x, batch x dim or batch x dim x length, which continues conv_state, batch x dim "
        "x (width − 1 or more). new_conv_state is as long as conv_state and ends with x.",
    ),
    OperatorDescriptor(
        name="selective_scan",
        signature="u, delta, A, B, C, D?, z?, delta_bias?, initial_state? -> out, last_state?",
        aliases=("selective_scan_fn",),
        attributes=(
            attribute("delta_softplus: bool = False", "Apply softplus to delta, after delta_bias is added."),
            attribute("return_last_state: bool = False", "Return last_state, batch x dim x states, too."),
        ),
        dtype_variants=(("float32",), ("float64",), *dict.fromkeys(_half_variants())),
        domain="selective_scan_domain",
        generator={"A": "uniform", "delta": "uniform"},
        sum_length="states",
        rule=composed("running errors of softplus, exp(δ·A), the recurrence step by step, Σ h·C, u·D and silu(z)"),
        description="Scan of Mamba (Gu and Dao, 2023; layouts of mamba_ssm's selective_scan_fn): "
        "h[t] = exp(δ[t]·A)·h[t − 1] + δ[t]·B[t]·u[t] from initial_state, batch x dim x states, or 0, "
        "out[t] = Σ h[t]·C[t] + D·u[t], times silu(z[t]). u, delta and z are batch x dim x length, A is dim x states, "
        "D and delta_bias dim. B and C are dim x states, or change with time: batch x states x length, or batch x "
        "groups x states x length.",
    ),
)


def infer_causal_conv1d(specs: Specs, attributes: Attributes) -> Outputs:
    declared = f"x: T[batch, dim, length], {_FILTER}, initial_states?: T[batch, dim, width-1]"
    n, outputs = match_declaration(specs, f"{declared} -> T[batch, dim, length], T[batch, dim, width-1]")
    _require_width(n.width)
    return outputs if attributes.get("return_final_states") else outputs[:1]


def infer_causal_conv1d_update(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return the specs of out, like x, and of the new state, like conv_state."""
    require_rank(require_spec(specs, 0, "x"), "x", 2, 3)
    declared = f"x: T[batch, dim, *length], conv_state: T[batch, dim, state], {_FILTER}"
    n, outputs = match_declaration(specs, f"{declared} -> T[batch, dim, *length], T[batch, dim, state]")
    _require_width(n.width)
    if n.state < n.width - 1:
        raise UnfitArguments(f"conv_state has {n.state} elements per channel, expected {n.width - 1} or more")
    return outputs


def _require_width(width: int) -> None:
    if not width:
        raise UnfitArguments("weight has rows of 0 elements, expected 1 or more")


def width(specs: Specs, _attributes: Attributes) -> int:
    """Return the number of terms of a sum: the width of the filter, and the bias."""
    # The weight is the second input of one operator and the third of the other.
    return 1 + max((each.shape[1] for each in specs[1:3] if each is not None and each.rank == 2), default=1)


def _conv_call(batch: int, dim: int, length: int, width: int = 4, **attributes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {"x": (batch, dim, length), "weight": (dim, width), "bias": (dim,)}
    return call(attributes, **shapes, initial_states=(batch, dim, width - 1))


def causal_conv1d_samples() -> Iterator[Sample]:
    calls = [
        _conv_call(2, 5, 37, activation="silu", return_final_states=True),
        without(_conv_call(2, 3, 17, 3), "initial_states"),
        without(_conv_call(1, 9, 33, 2, activation="swish"), "bias"),
    ]
    sized = lambda n: _conv_call(2, 3, n, activation="silu", return_final_states=True)  # noqa: E731
    yield from standard_samples(calls, FLOATS, sized=sized)
    more = [
        without(_conv_call(2, 5, 9, activation="silu", return_final_states=True), "bias", "initial_states"),
        _conv_call(3, 2, 8, 1),
        _conv_call(3, 2, 8, 7, activation="silu"),
        without(_conv_call(2, 3, 2, 4, return_final_states=True), "initial_states"),
        _conv_call(2, 3, 1, 4, return_final_states=True),
        _conv_call(2, 3, 2, 4, return_final_states=True),
    ]
    yield from variations("attributes", more, dtypes=EVERY_FLOAT)
    yield from variations("sizes", [_conv_call(2, n, 5, activation="silu") for n in CALM_SIZES], dtypes=MAIN_FLOATS)
    # Sums far below 0, in the tail of silu.
    steep = {"x": uniform(-60.0, 10.0), "weight": uniform(0.0, 1.0)}
    yield from variations("long tail", [{**calls[0], "generator": steep}], dtypes=EVERY_FLOAT)
    yield from error_samples(
        call(x=(2, 5, 9), weight=(4, 4)),
        call(x=(2, 5, 9), weight=(5, 4), bias=(4,)),
        call(x=(2, 5, 9), weight=(5, 4), bias=(5,), initial_states=(2, 5, 4)),
        call(x=(5, 9), weight=(5, 4)),
    )


def _update_call(
    batch: int, dim: int, length: int, width: int = 4, state: int = 3, **attributes: Any
) -> dict[str, Any]:
    """Build a call of causal_conv1d_update; a length of 0 is one token, with x of two dimensions."""
    x = (batch, dim, length) if length else (batch, dim)
    return call(attributes, x=x, conv_state=(batch, dim, state), weight=(dim, width), bias=(dim,))


def causal_conv1d_update_samples() -> Iterator[Sample]:
    calls = [
        _update_call(3, 37, 0, activation="silu"),
        _update_call(2, 5, 3, 4, 6, activation="silu"),
        without(_update_call(2, 9, 0, 2, 5), "bias"),
    ]
    yield from standard_samples(calls, FLOATS, sized=lambda n: _update_call(2, n, 0, activation="silu"))
    more = [_update_call(2, 5, length, 4, state) for length, state in ((1, 3), (2, 3), (7, 3), (7, 9), (1, 4))]
    more += [_update_call(2, 5, 0, 3, 2), _update_call(2, 5, 0, 1, 1, activation="swish"), without(calls[1], "bias")]
    yield from variations("attributes", more, dtypes=EVERY_FLOAT)
    yield from variations("sizes", [_update_call(n, 5, 0, activation="silu") for n in CALM_SIZES], dtypes=MAIN_FLOATS)
    yield from error_samples(
        call(x=(2, 5), conv_state=(2, 5, 2), weight=(5, 4)),
        call(x=(2, 5), conv_state=(2, 4, 3), weight=(5, 4)),
        call(x=(2, 5), conv_state=(2, 5, 3), weight=(4, 4)),
    )


def infer_selective_scan(specs: Specs, attributes: Attributes) -> Outputs:
    row, parameter = "T[batch, dim, length]", "P[dim]"
    tensors = f"u: {row}, delta: {row}, A: P[dim, states], B: [*b], C: [*c]"
    more = f"D?: {parameter}, z?: {row}, delta_bias?: {parameter}, initial_state?: P[batch, dim, states]"
    n, outputs = match_declaration(specs, f"{tensors}, {more} -> {row}, P[batch, dim, states]")
    for name, spec in (("B", specs[3]), ("C", specs[4])):
        assert spec is not None
        groups = spec.shape[1] if spec.rank == 4 else 1
        fixed, varied = (n.dim, n.states), (n.batch, n.states, n.length)
        if spec.shape not in (fixed, varied, (n.batch, groups, *varied[1:])) or not groups or n.dim % groups:
            raise UnfitArguments(
                f"{name} is {format_shape(spec.shape)}, expected {format_shape(fixed)}, {format_shape(varied)}, or "
                f"{n.batch}xGROUPSx{n.states}x{n.length} with a divisor of {n.dim} for GROUPS"
            )
        expected = n.P if spec.rank == 2 else n.T
        if spec.dtype != expected:
            raise UnfitArguments(f"{name} is {spec.dtype}, expected {expected}")
    if n.P != n.T and not (n.T.bits == 16 and dtype("float32") == n.P):
        expected = f"{n.T} or float32" if n.T.bits == 16 else n.T
        raise UnfitArguments(f"A is {n.P}, expected {expected}, as u is {n.T}")
    return outputs if attributes.get("return_last_state") else outputs[:1]


def selective_scan_domain(_specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return ranges with which states decay: A below 0, and delta from 0 to 1 unless softplus makes it positive."""
    steps = {} if attributes.get("delta_softplus") else {"delta": Interval(low=0.0, high=1.0)}
    return {"A": Interval(low=-4.0, high=-0.125), **steps}


def states(specs: Specs, _attributes: Attributes) -> int:
    """Return the number of terms of the sum over states."""
    _, _, a = required_inputs(specs, *_NAMES[:3])
    return a.shape[1] if a.rank == 2 else 1


def _scan_call(
    batch: int, dim: int, length: int, states: int, kind: str = "float32", *, groups: int = 0, **attributes: Any
) -> dict[str, Any]:
    """Build a call with all inputs; ``groups`` is the dimension of B and C, 0 for none, -1 for constant B and C."""
    row, parameter = [batch, dim, length], [dim]
    varied = [dim, states] if groups < 0 else [batch, *([groups] if groups else []), states, length]
    in_order = (row, row, [dim, states], varied, varied, parameter, row, parameter, [batch, dim, states])
    shapes = dict(zip(_NAMES, in_order, strict=True))
    wide = ("B", "C") if groups < 0 else ()
    dtypes = _mixed_dtypes(kind, _NAMES, wide) if kind in _HALVES else [kind]
    return {"shapes": shapes, "dtypes": dtypes, "attributes": {"delta_softplus": True, **attributes}}


def selective_scan_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_scan_call(2, 5, 17, 4), tier=Tier.SMOKE)
    for kind in ("float32", "float64", *_HALVES):
        full, grouped = _scan_call(2, 5, 17, 4, kind, return_last_state=True), _scan_call(1, 6, 9, 3, kind, groups=2)
        calls = [full, grouped, _scan_call(2, 3, 7, 16, kind, groups=-1), _scan_call(2, 4, 5, 1, kind, groups=1)]
        yield from variations("ordinary", calls)
        optional = (("D",), ("z",), ("delta_bias",), ("initial_state",), _NAMES[5:], _NAMES[5:8])
        # Without softplus the domain makes the steps positive, but a bias could make them negative again.
        plain = without(full, "delta_bias", "initial_state")
        plain_calls = [{**plain, "attributes": {"return_last_state": True}}, {**without(plain, "z"), "attributes": {}}]
        yield from variations("attributes", [*(without(full, *names) for names in optional), *plain_calls])
        drawn = [uniform(low, high) for low, high in ((-6.0, -2.0), (2.0, 30.0), (18.0, 22.0))]
        yield from variations("steps", [{**full, "generator": {"A": "uniform", "delta": fill}} for fill in drawn])
        # States that hardly decay: errors of all steps add up.
        slow: dict[str, Any] = {"A": {"fill": "full", "value": -0.125}, "delta": uniform(-8.0, -5.0)}
        kept = {**slow, "initial_state": uniform(-60.0, 60.0)}
        yield from variations(
            "steps", [{**_scan_call(1, 3, 129, 2, kind), "generator": slow}, {**full, "generator": kept}]
        )
        gate = {"A": "uniform", "delta": "randn", "z": uniform(-100.0, 20.0)}
        yield from variations("long tail", [{**full, "generator": gate}])
        yield from in_layouts_at_once([full, grouped])
        yield from variations("special", [{**full, "generator": {"A": "uniform", "delta": "uniform", "u": "special"}}])
    yield from in_every_layout([_scan_call(2, 3, 5, 2), _scan_call(2, 4, 3, 2, "float16", groups=2)])
    lengths = [
        _scan_call(1, 3, n, 2, return_last_state=True) for n in (0, 1, 2, 16, 31, 33, 64, 65, 255, 257, 1025, 2049)
    ]
    others = [_scan_call(1, n, 3, 2) for n in (1, 7, 33, 129, 257)] + [
        _scan_call(1, 2, 5, n) for n in (1, 8, 16, 17, 65, 256)
    ]
    yield from variations(
        "sizes", [*lengths, *others, _scan_call(2, 1025, 33, 1), _scan_call(0, 3, 5, 2), _scan_call(1, 1, 1, 1)]
    )
    wrong = [{"A": [4, 4]}, {"B": [2, 3, 17]}, {"C": [2, 2, 4, 17]}, {"D": [4]}, {"z": [2, 5, 16]}]
    wrong.append({"initial_state": [2, 4, 5]})
    ordinary = _scan_call(2, 5, 17, 4)
    yield from error_samples(*(reshaped(ordinary, **shapes) for shapes in wrong))
