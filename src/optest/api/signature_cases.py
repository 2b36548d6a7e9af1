"""Case sets of operators that state none: inference, or else the reference, says which shapes they take."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optest.core.border import Border
from optest.numerics import numpy_dtype
from optest.operators.signature_samples import SignatureSamples, signature_samples
from optest.registry import load_object
from optest.spec import Fault, OperatorDescriptor, Reason, TensorSpec

__all__ = ["by_signature"]


def by_signature(descriptor: OperatorDescriptor) -> SignatureSamples:
    """The samples that follow from the signature of an operator without any; of others, none and nothing to say."""
    if descriptor.samples is not None:
        return SignatureSamples(how="")

    def takes(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> bool:
        try:
            with Border(descriptor.name, Reason.BAD_CASE, let_through=lambda: True):
                _ask(descriptor, specs, attributes)
        except Fault:
            return False
        return True

    return signature_samples(descriptor, takes)


def _ask(descriptor: OperatorDescriptor, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> None:
    """Raise whatever its inference or, with ones for floats and zeros for integers, its reference raises."""
    if descriptor.infer is not None:
        load_object(descriptor.infer)(specs, attributes)
    elif descriptor.reference is not None:
        inputs = [
            None if each is None else np.full(each.shape, each.dtype.is_inexact, numpy_dtype(each.dtype))
            for each in specs
        ]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_object(descriptor.reference)(inputs, attributes)
