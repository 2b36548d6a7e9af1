"""JAX calls of elementwise operators, conversions and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from optest.jax.operators.calls import Attributes, Gap, JaxCall, Specs, Tensors, first_gap, lacks, no_gap, takes_no
from optest.operators.shapes import promote_tensors
from optest.spec import Kind, UnfitArguments, dtype

_WHOLE = (Kind.BOOL, Kind.INT, Kind.UINT)


def _of_all(function: Callable[..., Any], gap: Gap = no_gap) -> JaxCall:
    return JaxCall(lambda tensors, _: function(*tensors), gap)


def _other_promotion(specs: Specs, _: Attributes) -> str | None:
    """Return a reason if JAX promotes the operands to another dtype than the operator."""
    # JAX promotes 0-d arrays like others; the operator only if their category is higher.
    operands = [spec for spec in specs if spec is not None]
    try:
        ours = promote_tensors(operands).name
    except UnfitArguments:
        return None  # the case expects an error
    theirs = jnp.result_type(*(spec.dtype.name for spec in operands)).name
    both = " and ".join(dict.fromkeys(spec.dtype.name for spec in operands))
    return None if ours == theirs else f"JAX promotes {both} to {theirs}, the operator to {ours}"


def _result_is_float64(specs: Specs, _: Attributes) -> str | None:
    """Return a reason if the operands are integers, one of them int64."""
    operands = [spec.dtype for spec in specs if spec is not None]
    if any(kind.is_inexact for kind in operands) or all(kind.name != "int64" for kind in operands):
        return None
    return "JAX converts int64 to float64, the operator to float32"


def _constant_exponent(specs: Specs, _: Attributes) -> str | None:
    are_integers = all(spec is not None and not spec.dtype.is_inexact for spec in specs)
    is_constant = are_integers and specs[-1] is not None and not specs[-1].rank
    return "jnp.power treats a 0-d integer exponent as a constant, which must not be negative" if is_constant else None


def _clip(tensors: Tensors, attributes: Attributes) -> Any:
    # A float bound would make the result of integers a float.
    (source,) = tensors
    bounds = [attributes.get(name) for name in ("min", "max")]
    if not jnp.issubdtype(source.dtype, jnp.inexact):
        bounds = [int(bound) if bound is not None and bound == bound // 1 else bound for bound in bounds]
    return jnp.clip(source, *bounds)


def _other_bounds(specs: Specs, attributes: Attributes) -> str | None:
    (source,), bounds = specs, [attributes.get(name) for name in ("min", "max")]
    if bounds == [None, None]:
        return "jnp.clip accepts a call without bounds, the operator does not"
    if source is None or source.dtype.is_inexact or all(bound is None or bound == bound // 1 for bound in bounds):
        return None
    return "jnp.clip converts integers to float64 if a bound has a fraction, the operator to float32"


def _saturating_cast(specs: Specs, attributes: Attributes) -> str | None:
    (source,), target = specs, dtype(attributes["dtype"])
    is_float_to_uint = source is not None and source.dtype.is_inexact and target.kind is Kind.UINT
    reason = f"JAX converts negative floats to 0 as {target.name}, the operator wraps them"
    return reason if is_float_to_uint else None


def _of_same_name(module: Any, names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(module, name) for name in names.split()}


_PLAIN: dict[str, Callable[..., Any]] = {
    **_of_same_name(jnp, "abs floor ceil trunc logical_not logical_and logical_or logical_xor bitwise_not"),
    **_of_same_name(jax.nn, "relu selu silu"),
    "neg": jnp.negative,
    "hardswish": jax.nn.hard_swish,
}
# Functions that return floats also for integers.
_INEXACT: dict[str, Callable[[Any], Any]] = {
    **_of_same_name(jnp, "exp log log1p expm1 sqrt reciprocal sin cos tanh"),
    **_of_same_name(special, "erf erfinv digamma"),
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **_of_same_name(jnp, "floor_divide remainder fmod logaddexp maximum minimum bitwise_and bitwise_or bitwise_xor"),
    "mul": jnp.multiply,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}

CALLS: dict[str, JaxCall] = {
    **{name: _of_all(function) for name, function in _PLAIN.items()},
    **{name: _of_all(function, _result_is_float64) for name, function in _INEXACT.items()},
    **{name: _of_all(function, _other_promotion) for name, function in _BINARY.items()},
    "sign": _of_all(jnp.sign, takes_no("jnp.sign", Kind.BOOL)),
    "pow": _of_all(jnp.power, first_gap(_constant_exponent, _other_promotion)),
    "rsqrt": _of_all(lax.rsqrt, takes_no("lax.rsqrt", *_WHOLE)),
    "sigmoid": _of_all(jax.nn.sigmoid, takes_no("jax.nn.sigmoid", *_WHOLE)),
    "add": _of_all(jnp.add, first_gap(lacks("jnp.add", alpha=1.0), _other_promotion)),
    "sub": _of_all(jnp.subtract, first_gap(lacks("jnp.subtract", alpha=1.0), _other_promotion)),
    "div": _of_all(
        jnp.true_divide,
        first_gap(lacks("jnp.true_divide", rounding_mode=None), _result_is_float64, _other_promotion),
    ),
    "round": JaxCall(lambda tensors, attributes: jnp.round(tensors[0], attributes.get("decimals", 0))),
    "clip": JaxCall(_clip, _other_bounds),
    "where": _of_all(jnp.where, lambda specs, attributes: _other_promotion(specs[1:], attributes)),
    "cast": JaxCall(
        lambda tensors, attributes: tensors[0].astype(attributes["dtype"]),
        first_gap(lacks("astype", saturate=False), _saturating_cast),
    ),
    "gelu": JaxCall(
        lambda tensors, attributes: jax.nn.gelu(tensors[0], approximate=attributes.get("approximate") == "tanh")
    ),
    "leaky_relu": JaxCall(
        lambda tensors, attributes: jax.nn.leaky_relu(tensors[0], attributes.get("negative_slope", 0.01))
    ),
    "elu": JaxCall(lambda tensors, attributes: jax.nn.elu(tensors[0], attributes.get("alpha", 1.0))),
    "softplus": _of_all(jax.nn.softplus, lacks("jax.nn.softplus", beta=1.0, threshold=20.0)),
}
