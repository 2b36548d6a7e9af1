"""Operators of OpInfo whose result cannot be held against another one, by name and with the reason."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["why_errors_left_out", "why_left_out", "why_sample_left_out"]

_ON_CUDA = "it runs on CUDA alone, from source code"
_REASONS = {
    "its result is uninitialised memory": """
        empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_
    """,
    "its vectors are defined up to sign or phase alone": """
        symeig lobpcg
    """,
    _ON_CUDA: """
        jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args jiterator_binary_return_by_ref
        jiterator_2inputs_2outputs
    """,
}
_REASON_OF = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def why_left_out(name: str, info: Any) -> str | None:
    """Why no sample of an operator is asked, None if they are; ``name`` is its full name."""
    return _REASON_OF.get(name) or _REASON_OF.get(info.name)


def why_errors_left_out(info: Any) -> str | None:
    """Why no refusal of an operator is asked for, None if they are: also where no result of it can be judged."""
    reason = _REASON_OF.get(info.name)
    return reason if reason == _ON_CUDA else None


def why_sample_left_out(info: Any, sample: Any) -> str | None:
    """Why one sample of an operator is not asked, None if it is."""
    if info.name == "histogram" and not any(isinstance(each, torch.Tensor) for each in sample.args):
        values = sample.input
        if "range" not in sample.kwargs and values.numel() and bool((values == values.flatten()[0]).all()):
            return "its values lie on the edge between two bins, which are made around them"
    return None
