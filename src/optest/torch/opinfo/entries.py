"""What entries of a plan say of OpInfo's tensors and calls, whether these are to be answered or to be refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from optest.core.border import Border
from optest.spec import Fault, Reason, contiguous_strides, dtype_names
from optest.spec.calls import MOST_CHARACTERS, Call, call_text
from optest.torch.opinfo.calls import Unstatable
from optest.torch.opinfo.fill import array_of, digest_of

__all__ = ["entry", "made", "tensor_keys", "trial_calls"]


def entry(
    function: str, name: str, dtype: str, *, call: Call | None = None, kind: str = "function", **keys: Any
) -> dict[str, Any]:
    """An entry of ``cases``, with what else its ``keys`` say; without a call it has to say why it is skipped.

    Raises:
        Unstatable: for a call that is too long.
    """
    text = call_text(call or Call(function))
    if len(text) > MOST_CHARACTERS:
        raise Unstatable(f"the call has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    return {
        "op": function,
        "name": name,
        "attributes": {"call": text},
        "tags": ["opinfo", dtype, kind],
        **keys,
    }


def made(what: str, make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """What OpInfo makes.

    Raises:
        Unstatable: if it cannot.
    """
    try:
        with Border("OpInfo", Reason.BAD_CASE, let_through=lambda: True):
            return make()
    except Fault as fault:
        raise Unstatable(f"{what} cannot be made: {fault.message[:300]}") from None


@contextmanager
def trial_calls() -> Iterator[None]:
    """Calls that are made here and again by the run: nothing is warned of, and random numbers go on as before.

    Samples are small: threads that wait for each other cost more than the calls, twentyfold on a busy machine.
    """
    threads = torch.get_num_threads()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def tensor_keys(tensors: Sequence[torch.Tensor], place: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of an entry that say what its tensors are; ``place`` says for the fill where they are found again.

    Raises:
        Unstatable: for a tensor that is more than elements in memory.
    """
    if not tensors:
        return {}
    shapes, dtypes, fills = {}, {}, {}
    for index, tensor in enumerate(tensors):
        path = f"input{index}"
        _require_plain(tensor)
        shapes[path] = _layout(tensor)
        dtypes[path] = str(tensor.dtype).removeprefix("torch.")
        fills[path] = {"fill": "opinfo", **place, "tensor": index, "digest": _digest(tensor)}
    return {"shapes": shapes, "dtypes": dtypes, "generator": fills}


def _digest(tensor: torch.Tensor) -> str:
    try:
        return digest_of(array_of(tensor))
    except ValueError:
        raise Unstatable(f"a tensor has {tensor.dim()} dimensions, more than NumPy holds") from None


def _require_plain(tensor: torch.Tensor) -> None:
    kind = type(tensor)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        raise Unstatable(f"a tensor is a {kind.__name__}")
    if tensor.layout is not torch.strided:
        raise Unstatable(f"a tensor is {str(tensor.layout).removeprefix('torch.')}")
    if tensor.is_quantized or tensor.device.type != "cpu":
        raise Unstatable(f"a tensor is {'quantized' if tensor.is_quantized else f'on {tensor.device}'}")
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in dtype_names():
        raise Unstatable(f"a tensor is {name}, which optest does not know")


def _layout(tensor: torch.Tensor) -> Any:
    shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    if strides == contiguous_strides(shape) and not offset:
        return list(shape)
    return {"shape": list(shape), "strides": list(strides), "offset": offset}
