"""All references of the catalogue in one module: ``optest.operators.reference_impls:gemm_reference``.

A reference takes the inputs in the signature's order, with None or nothing for an optional input that is left out,
and the bound attributes. It returns one array for each output: unrounded float64 or complex128, exact integers, bool,
or moved elements unchanged. Non-finite values follow PyTorch. References emit no NumPy warnings.
"""

from __future__ import annotations

from typing import Any

from optest.operators.catalogue import DESCRIPTORS
from optest.registry import load_object

_PATHS = {path.partition(":")[2]: path for path in (each.reference for each in DESCRIPTORS) if isinstance(path, str)}

__all__ = list(_PATHS)


def __getattr__(name: str) -> Any:
    # Loaded on access: most runs need a few of the hundred modules.
    if name not in _PATHS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_object(_PATHS[name])
