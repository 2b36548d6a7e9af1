"""What OpInfo says that an operator has to refuse, as cases that expect the refusal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from optest.plan.sources import SourceRequest
from optest.spec import ExpectedError
from optest.torch.fact_sheet import facts_of
from optest.torch.opinfo.calls import Unstatable, call_of
from optest.torch.opinfo.entries import entry, made, tensor_keys, trial_calls
from optest.torch.opinfo.fill import errors_of, tensors_of
from optest.torch.opinfo.trial_call import Refused, refusal_of
from optest.torch.opinfo.variants import variants_of

__all__ = ["KIND", "error_entries"]

KIND = "error"
"""The tag of these cases, in the place of the form in which a sample is asked."""


def error_entries(name: str, info: Any, supported: Sequence[str], request: SourceRequest) -> Iterator[dict[str, Any]]:
    """The error inputs of one operator, ``opinfo::NAME::DTYPE::errorN``; N counts those of all dtypes.

    The dtype is that of the first tensor. A call without a tensor goes with float32, or with the first of ``supported``
    dtypes, where the operator has no float32. What torch on the CPU accepts, or refuses otherwise, is skipped.
    """
    variant = variants_of(info)[0]
    without_tensors = "float32" if "float32" in supported or not supported else supported[0]
    try:
        if reason := facts_of(f"torch.{info.name}").no_refusal:
            raise Unstatable(reason)
        errors = made("its error inputs", lambda: errors_of(name, request.seed))
    except Unstatable as why:
        yield entry(variant.function, f"opinfo::{name}::errors", without_tensors, kind=KIND, skip=str(why))
        return
    with trial_calls():
        for number, error in enumerate(errors):
            tensors = tensors_of(error.sample_input)
            dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else without_tensors
            if request.dtypes and dtype not in request.dtypes:
                continue
            title = f"opinfo::{name}::{dtype}::error{number}"
            place = {"op": name, "dtype": dtype, "sample": number, "of": "errors"}
            try:
                keys = tensor_keys(tensors, place)
                call = call_of(variant, info, error.sample_input, tensors, request.device, is_refused=True)
                stated = entry(call.function, title, dtype, call=call, kind=KIND, **keys)
                _require_own_memory(tensors)
                stated["expects_error"] = _expected(error, refusal_of(stated["attributes"]["call"], tensors))
            except (Unstatable, Refused) as why:
                stated = entry(variant.function, title, dtype, kind=KIND, skip=str(why))
            yield stated


def _require_own_memory(tensors: Sequence[torch.Tensor]) -> None:
    """Each tensor of a case has memory of its own, so nothing can be said of what is refused as they share it.

    Raises:
        Unstatable: if two do.
    """
    places = [each.untyped_storage().data_ptr() for each in tensors if each.numel()]
    if len(set(places)) < len(places):
        raise Unstatable("two of its tensors share memory")


_SLIPS = (AttributeError, ImportError, NameError)
"""What code raises that meant to do something: a refusal by one of them has to be asked for by its name."""


def _expected(error: Any, raised: Exception) -> dict[str, str]:
    """What the case expects: the type and the regular expression of OpInfo, which torch on the CPU has to fit.

    Raises:
        Refused: if it does not: OpInfo and torch are at odds, and no device can be right.
    """
    kind = error.error_type
    if kind is Exception and isinstance(raised, _SLIPS):
        kind = type(raised)
    wanted = ExpectedError(type=kind.__name__, pattern=error.error_regex)
    said = f"{type(raised).__name__}: {raised}"
    if not isinstance(raised, kind) or not wanted.is_said_by(said):
        text = wanted.wanted_text()
        raise Refused(
            f"torch on the CPU says {said[:200]!r}, but OpInfo {wanted.type}{f' with {text}' if text else ''}"
        )
    return {"type": wanted.type, **({"pattern": wanted.pattern} if wanted.pattern else {})}
