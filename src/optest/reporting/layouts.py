"""How the inputs of a case lie in memory, where that is not row after row from the start: told with a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optest.spec import CaseResult, TensorSpec, dtype
from optest.spec.tensors import format_shape

__all__ = ["layout_text", "layouts_data", "layouts_of"]


def layouts_of(result: CaseResult) -> dict[str, TensorSpec]:
    """The inputs with strides or an offset of their own, by their place in the call."""
    found = {}
    for _, path, spec, *_ in result.case.get("inputs", ()):
        if len(spec) > 2:
            name, shape, strides, offset = spec
            tensor = TensorSpec(
                dtype=dtype(name),
                shape=tuple(shape),
                strides=None if strides is None else tuple(strides),
                offset=offset,
            )
            if not tensor.is_plain:
                found[path] = tensor
    return found


def layout_text(spec: TensorSpec) -> str:
    """``float16 2x3x8, strides [48, 16, 1], offset 3``."""
    strides = "" if spec.strides is None else f", strides {list(spec.strides)}"
    return f"{spec.dtype.name} {format_shape(spec.shape)}{strides}" + (f", offset {spec.offset}" if spec.offset else "")


def layouts_data(result: CaseResult) -> Mapping[str, Mapping[str, Any]]:
    """The same as plain data: strides (None: row after row) and offset in elements, by input."""
    return {
        path: {"strides": None if spec.strides is None else list(spec.strides), "offset": spec.offset}
        for path, spec in layouts_of(result).items()
    }
