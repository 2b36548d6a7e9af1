"""A tensor of a model case as a plan has it: shape and layout, dtype, fill."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optest.errors import UnknownName, nearest
from optest.plan.forms import Misfit
from optest.spec import DType, contiguous_strides
from optest.spec import dtype as dtype_called

__all__ = ["dtype_of", "fill_of", "layout_of"]

_OTHER_DTYPES = {
    "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32",
    "fp64": "float64", "double": "float64", "long": "int64", "int": "int32", "short": "int16", "char": "int8",
    "byte": "uint8", "cfloat": "complex64", "cdouble": "complex128", "fp8": "float8_e4m3fn",
}  # fmt: skip


def dtype_of(word: str) -> DType:
    """``fp16``, ``float16`` and ``torch.float16`` are one dtype.

    Raises:
        Misfit: for a word that is none.
    """
    name = word.removeprefix("torch.")
    try:
        return dtype_called(_OTHER_DTYPES.get(name, name))
    except UnknownName as error:
        raise Misfit(str(error)) from None


def layout_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The shape as a plan has it, with strides and offset where they are not those of a dense tensor.

    Raises:
        Misfit: for a preset that does not exist or does not fit, or strides of another rank.
    """
    shape = entry.get("shape")
    if shape is None:
        raise Misfit("the tensor has no shape", hint="shape: [2, 3]")
    strides, offset = entry.get("stride"), entry.get("storage_offset", 0)
    preset = entry.get("preset")
    if preset is not None:
        if strides is not None or offset:
            raise Misfit("a preset and a stride are stated, but either says how the tensor lies in memory")
        strides = _by_preset(preset, entry.get("preset_args") or {}, shape)
    elif "preset_args" in entry:
        raise Misfit("preset_args stand without a preset", hint=f"preset: {next(iter(_PRESETS))}")
    if strides is None and not offset:
        return {"shape": shape}
    if strides is not None and len(strides) != len(shape):
        raise Misfit(f"stride has {len(strides)} entries, but the shape {len(shape)}", path=("stride",))
    is_dense = strides is None or list(strides) == list(contiguous_strides(tuple(shape)))
    if is_dense and not offset:
        return {"shape": shape}
    return {"shape": shape, "strides": strides or list(contiguous_strides(tuple(shape))), "offset": offset}


def _by_preset(name: str, given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    make = _PRESETS.get(name)
    if make is None:
        near = nearest(name, _PRESETS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise Misfit(f"preset is {name!r}, but should be one of {', '.join(_PRESETS)}{hint}", path=("preset",))
    return make(dict(given), shape)


def _noncontig_slice(given: dict[str, Any], shape: Sequence[int]) -> list[int]:
    """Every ``step``-th element of dimension ``dim``."""
    dim, step = _dimension(given, "dim", shape, -1), _integer(given, "step", 2)
    _require_nothing_left(given, ("dim", "step"))
    if step < 1:
        raise Misfit(f"step is {step}, but should be 1 or more", path=("preset_args",))
    base = [size * step if index == dim else size for index, size in enumerate(shape)]
    strides = list(contiguous_strides(tuple(base)))
    strides[dim] *= step
    return strides


def _transpose_view(given: dict[str, Any], shape: Sequence[int]) -> list[int]:
    """Dense with ``dim0`` and ``dim1`` the other way round."""
    one, other = _dimension(given, "dim0", shape, 0), _dimension(given, "dim1", shape, 1)
    _require_nothing_left(given, ("dim0", "dim1"))
    order = list(range(len(shape)))
    order[one], order[other] = order[other], order[one]
    base = contiguous_strides(tuple(shape[index] for index in order))
    strides = [0] * len(shape)
    for place, index in enumerate(order):
        strides[index] = base[place]
    return strides


def _expand_view(given: dict[str, Any], shape: Sequence[int]) -> list[int]:
    """A tensor of ``base_shape`` whose sizes of 1 are repeated."""
    base = given.pop("base_shape", [1, *shape[1:]])
    _require_nothing_left(given, ("base_shape",))
    if not isinstance(base, list) or len(base) > len(shape):
        raise Misfit(f"base_shape is {base!r}, but should be a list of at most {len(shape)} sizes", path=_ARGS)
    sizes = [1] * (len(shape) - len(base)) + base
    if any(size not in (1, wanted) for size, wanted in zip(sizes, shape, strict=True)):
        raise Misfit(f"base_shape {base} cannot be expanded to {list(shape)}", path=_ARGS)
    dense = contiguous_strides(tuple(sizes))
    return [0 if size == 1 and wanted != 1 else step for size, wanted, step in zip(sizes, shape, dense, strict=True)]


_ARGS = ("preset_args",)
_PRESETS: Mapping[str, Callable[[dict[str, Any], Sequence[int]], list[int]]] = {
    "noncontig_slice": _noncontig_slice,
    "transpose_view": _transpose_view,
    "expand_view": _expand_view,
}


def _integer(given: dict[str, Any], name: str, default: int) -> int:
    value = given.pop(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(f"{name} is {value!r}, but should be an integer", path=_ARGS)
    return value


def _dimension(given: dict[str, Any], name: str, shape: Sequence[int], default: int) -> int:
    value, rank = _integer(given, name, default), len(shape)
    if not -rank <= value < rank:
        raise Misfit(f"{name} is {value}, but the tensor has {rank} dimensions", path=_ARGS)
    return value % rank


def _require_nothing_left(given: Mapping[str, Any], known: Sequence[str]) -> None:
    if given:
        raise Misfit(f"preset_args has {next(iter(given))!r}, but knows {', '.join(known)}", path=_ARGS)


def fill_of(entry: Mapping[str, Any], dtype: DType) -> Any:
    """The generator of a plan for ``init``; rand is meant for floats, other types draw from a range of their own.

    Raises:
        Misfit: for an init that does not exist, or arguments that it does not take.
    """
    init, given = entry.get("init", "rand"), entry.get("init_args")
    make = _INITS.get(init)
    if make is None:
        near = nearest(init, _INITS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise Misfit(f"init is {init!r}, but should be one of {', '.join(_INITS)}{hint}", path=("init",))
    if given is not None and not isinstance(given, dict) and init != "data":
        raise Misfit(f"init_args is {given!r}, but should be a mapping", path=_INIT_ARGS)
    return make(given, dtype, entry)


_INIT_ARGS = ("init_args",)


def _taken(given: Any, **defaults: Any) -> dict[str, Any]:
    stated = dict(given or {})
    strange = next((name for name in stated if name not in defaults), None)
    if strange is not None:
        known = ", ".join(defaults) or "none"
        raise Misfit(f"init_args has {strange!r}, but this init knows {known}", path=_INIT_ARGS)
    return {**defaults, **{name: value for name, value in stated.items() if value is not None}}


def _rand(given: Any, dtype: DType, _: Mapping[str, Any]) -> Any:
    stated = _taken(given, low=None, high=None)
    if not dtype.is_inexact:
        if stated["low"] is None and stated["high"] is None:
            return "randint"
        return _integers(stated["low"] or 0, stated["high"] if stated["high"] is not None else 1)
    low, high = stated["low"] or 0.0, 1.0 if stated["high"] is None else stated["high"]
    return {"fill": "uniform", "low": low, "high": high}


def _integers(low: Any, high: Any) -> dict[str, Any]:
    return {"fill": "randint", "low": math.ceil(low), "high": max(math.ceil(high), math.ceil(low) + 1)}


def _randint(given: Any, dtype: DType, _: Mapping[str, Any]) -> Any:
    stated = _taken(given, low=0, high=None)
    if dtype.kind.value == "bool":
        return "randint"
    if stated["high"] is None:
        return "randint"
    return {"fill": "randint", "low": math.ceil(stated["low"]), "high": math.ceil(stated["high"])}


def _uniform(given: Any, dtype: DType, _: Mapping[str, Any]) -> Any:
    stated = _taken(given, low=0.0, high=1.0)
    if not dtype.is_inexact:
        return _integers(stated["low"], stated["high"])
    return {"fill": "uniform", "low": stated["low"], "high": stated["high"]}


def _xavier(given: Any, dtype: DType, entry: Mapping[str, Any]) -> Any:
    """Evenly from -a to a with a = gain·sqrt(6 / (fan in + fan out)) (Glorot and Bengio, 2010)."""
    gain = _taken(given, gain=1.0)["gain"]
    shape = entry.get("shape") or [1]
    receptive = math.prod(shape[2:])
    fans = (shape[0] + (shape[1] if len(shape) > 1 else shape[0])) * receptive
    bound = gain * math.sqrt(6.0 / max(fans, 1))
    return {"fill": "uniform", "low": -bound, "high": bound} if dtype.is_inexact else "randint"


def _data(given: Any, _: DType, __: Mapping[str, Any]) -> Any:
    values = given.get("values", given.get("data")) if isinstance(given, dict) else given
    if values is None:
        raise Misfit("init is data, but init_args has no values", path=_INIT_ARGS, hint="init_args: [[1, 2], [3, 4]]")
    return {"fill": "data", "values": values}


def _full(given: Any, _: DType, __: Mapping[str, Any]) -> Any:
    stated = dict(given or {})
    value = stated.get("value", stated.get("fill_value"))
    if value is None:
        raise Misfit("init is full, but init_args has no value", path=_INIT_ARGS, hint="init_args: {value: 1.5}")
    return {"fill": "full", "value": value}


def _arange(given: Any, _: DType, __: Mapping[str, Any]) -> Any:
    return {"fill": "arange", **_taken(given, start=0, step=1)}


def _file(given: Any, _: DType, __: Mapping[str, Any]) -> Any:
    path = _taken(given, path=None)["path"]
    if path is None:
        raise Misfit("init is file, but init_args has no path", path=_INIT_ARGS, hint="init_args: {path: x.pt}")
    return {"fill": "file", "path": path}


def _plain(name: str) -> Callable[[Any, DType, Mapping[str, Any]], Any]:
    def make(given: Any, _: DType, __: Mapping[str, Any]) -> Any:
        _taken(given)
        return name

    return make


_INITS: Mapping[str, Callable[[Any, DType, Mapping[str, Any]], Any]] = {
    "rand": _rand,
    "randn": _plain("randn"),
    "zeros": _plain("zeros"),
    "ones": _plain("ones"),
    "arange": _arange,
    "randint": _randint,
    "uniform": _uniform,
    "data": _data,
    "full": _full,
    "eye": _plain("eye"),
    "xavier": _xavier,
    "file": _file,
}
