"""Several values that a call writes to one place: torch leaves open which of them stays, and devices differ."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from optest.numerics import Array
from optest.torch.calls.arrays import as_array
from optest.torch.calls.calling import TorchCall, torch_call
from optest.torch.calls.cpu_tensors import on_cpu

__all__ = ["any_of_several"]

_CPU = torch.device("cpu")
_NAMES = {
    "setitem": ("input", "indices", "values"),
    "index_put": ("input", "indices", "values", "accumulate"),
    "index_copy": ("input", "dim", "index", "source"),
    "scatter": ("input", "dim", "index", "src"),
}


def any_of_several(inputs: Sequence[Any], text: str, name: str, results: Sequence[Any]) -> list[Any]:
    """True where several values were to be written and one of them stands there; None where no two meet."""
    with suppress(IndexError, KeyError, RuntimeError, TypeError, ValueError):
        places, values = _written(name, _arguments(torch_call(text), on_cpu(inputs), _NAMES[name]))
        if len(np.unique(places)) < places.size:
            return [_stays(places, values, np.asarray(each)) for each in results]
    return [None] * len(results)


def _arguments(call: TorchCall, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def keep(*args: Any, **kwargs: Any) -> tuple[()]:
        found.update(zip(names, args, strict=False), **kwargs)
        return ()

    replace(call, function=keep).on(tensors, _CPU)()
    return found


def _written(name: str, given: dict[str, Any]) -> tuple[Array, Array]:
    """Where each value goes, as the number of an element of the tensor that is written to, and the values."""
    target = given["input"] if "input" in given else given["self"]
    numbers = torch.arange(target.numel()).view(target.shape)
    if given.get("accumulate") or given.get("reduce") is not None:
        raise ValueError("all of them count")
    if name == "index_copy":
        places, values = numbers.index_select(given["dim"], given["index"]), given["source"]
    elif name == "scatter":
        places = numbers.gather(given["dim"], given["index"])
        values = given["src"][tuple(map(slice, places.shape))]
    else:
        key = given["indices"]
        if name == "index_put":
            key = tuple([slice(None) if each is None else each for each in key])
        places, values = numbers[key], given["values"]
    values = torch.broadcast_to(torch.as_tensor(values, dtype=target.dtype), places.shape)
    return places.flatten().numpy(), np.asarray(as_array(values)).reshape(-1)


def _stays(places: Array, values: Array, result: Array) -> Array | None:
    if values.dtype != result.dtype:
        return None
    elements = result.reshape(-1)
    found = np.zeros(elements.size, dtype=bool)
    found[places[_are_same(elements[places], values)]] = True
    several = np.bincount(places, minlength=elements.size) > 1
    return (found & several).reshape(result.shape)


def _are_same(one: Array, other: Array) -> Array:
    """Bit for bit, NaN for NaN."""
    size = one.dtype.itemsize
    bits = [np.ascontiguousarray(each).view(np.uint8).reshape(-1, size) for each in (one, other)]
    same: Array = (bits[0] == bits[1]).all(axis=1) | ((one != one) & (other != other))
    return same
