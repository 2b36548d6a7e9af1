"""The JAX calls of the elementwise, the conversion and the activation family."""

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
    """A call of the tensors alone."""
    return JaxCall(lambda tensors, _: function(*tensors), gap)


def _other_promotion(specs: Specs, _: Attributes) -> str | None:
    """A 0-d array counts like any other in JAX; in the catalogue only where it is of a higher category."""
    operands = [each for each in specs if each is not None]
    try:
        ours = promote_tensors(operands).name
    except UnfitArguments:
        return None  # a call that has to be refused
    theirs = jnp.result_type(*(each.dtype.name for each in operands)).name
    both = " and ".join(dict.fromkeys(each.dtype.name for each in operands))
    return None if ours == theirs else f"JAX promotes {both} to {theirs}, the operator to {ours}"


def _result_is_float64(specs: Specs, _: Attributes) -> str | None:
    """JAX takes int64 to float64, the catalogue every integer to float32."""
    operands = [each for each in specs if each is not None]
    if any(each.dtype.is_inexact for each in operands) or all(each.dtype.name != "int64" for each in operands):
        return None
    return "JAX takes int64 to float64, the operator to float32"


def _constant_exponent(specs: Specs, _: Attributes) -> str | None:
    is_whole = all(each is not None and not each.dtype.is_inexact for each in specs)
    is_constant = is_whole and specs[-1] is not None and not specs[-1].rank
    return "jnp.power takes a 0-d integer for a constant, which may not be negative" if is_constant else None


def _clip(tensors: Tensors, attributes: Attributes) -> Any:
    """Whole bounds of integers go in as int: a float one would make the result a float."""
    (source,) = tensors
    bounds = [attributes.get(name) for name in ("min", "max")]
    if not jnp.issubdtype(source.dtype, jnp.inexact):
        bounds = [int(each) if each is not None and each == each // 1 else each for each in bounds]
    return jnp.clip(source, *bounds)


def _other_bounds(specs: Specs, attributes: Attributes) -> str | None:
    (source,), bounds = specs, [attributes.get(name) for name in ("min", "max")]
    if bounds == [None, None]:
        return "jnp.clip takes no bound at all, too, and refuses nothing"
    if source is None or source.dtype.is_inexact or all(each is None or each == each // 1 for each in bounds):
        return None
    return "jnp.clip takes integers to float64 where a bound has a fraction, the operator to float32"


def _saturates(specs: Specs, attributes: Attributes) -> str | None:
    (source,), target = specs, dtype(attributes["dtype"])
    is_other = source is not None and source.dtype.is_inexact and target.kind is Kind.UINT
    return f"JAX takes negative floats to 0 as {target.name}, the operator lets them wrap" if is_other else None


def _of_same_name(module: Any, names: str) -> dict[str, Callable[..., Any]]:
    """The functions of JAX that have the names of operators."""
    return {name: getattr(module, name) for name in names.split()}


_PLAIN: dict[str, Callable[..., Any]] = {
    **_of_same_name(jnp, "abs floor ceil trunc logical_not logical_and logical_or logical_xor bitwise_not"),
    **_of_same_name(jax.nn, "relu selu silu"),
    "neg": jnp.negative,
    "hardswish": jax.nn.hard_swish,
}
_INEXACT: dict[str, Callable[[Any], Any]] = {
    **_of_same_name(jnp, "exp log log1p expm1 sqrt reciprocal sin cos tanh"),
    **_of_same_name(special, "erf erfinv digamma"),
}
"""What makes floats of integers."""
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
        first_gap(lacks("astype", saturate=False), _saturates),
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
