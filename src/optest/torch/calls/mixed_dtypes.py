"""Tensors whose dtypes torch does not take together: the reference, made in float64, does not show that.

Torch multiplies no bfloat16 matrix by a float32 one. With both in float64 it does, so such a case has expected values
though its data is wrong; a device may take it all the same, and is judged then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import torch

from optest.numerics import Array
from optest.spec import Fault, Reason, TestCase
from optest.spec.calls import call_text
from optest.torch.calls.calling import TorchCall, torch_call
from optest.torch.calls.cpu_tensors import on_cpu
from optest.torch.calls.refusals import REFUSALS, is_a_lack

__all__ = ["mixture_told"]

_CPU = torch.device("cpu")


@contextmanager
def mixture_told(case: TestCase, inputs: Sequence[Array]) -> Iterator[None]:
    """While inside, a device that refuses dtypes which torch on the CPU does not take together, either, is right.

    Raises:
        Fault: BAD_CASE, in torch's words on the CPU; whatever else is raised inside.
    """
    try:
        yield
    except (Fault, *REFUSALS) as error:
        if isinstance(error, Fault) and error.reason is not Reason.COMPILE:
            raise
        call = torch_call(case.attributes["call"])
        mixed = _dtypes_refused_together(call, inputs)
        if mixed is None:
            raise
        dtypes, refusal = mixed
        raise Fault(
            Reason.BAD_CASE,
            f"torch on the CPU refuses {call_text(call.call)} of {' and '.join(dtypes)}: "
            f"{type(refusal).__name__}: {str(refusal).strip()}; state one dtype for these tensors, or expects_error if "
            "the call should be refused",
        ) from error


def _dtypes_refused_together(call: TorchCall, inputs: Sequence[Array]) -> tuple[list[str], Exception] | None:
    """The dtypes and what torch on the CPU says of them; None where one dtype for all would not be taken, either."""
    tensors = on_cpu(inputs)
    kinds = dict.fromkeys(tensors[index].dtype for index in call.call.tensors() if _is_inexact(tensors[index]))
    if len(kinds) < 2:
        return None
    refusal = _refusal(call, tensors)
    if refusal is None or is_a_lack(refusal):
        return None
    try:
        common = reduce(torch.promote_types, kinds)
    except RuntimeError:  # of float8, which has none
        return None
    if _refusal(call, [each.to(common) if _is_inexact(each) else each for each in on_cpu(inputs)]) is not None:
        return None
    return [str(kind).removeprefix("torch.") for kind in kinds], refusal


def _is_inexact(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _refusal(call: TorchCall, tensors: Sequence[torch.Tensor]) -> Exception | None:
    try:
        with torch.no_grad():
            call.on(tensors, _CPU)()
    except REFUSALS as error:
        return error
    return None
