"""What entries of a plan say of OpInfo's tensors and calls, whether these are to be answered or to be refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from optest.spec import contiguous_strides, dtype_names
from optest.spec.calls import MOST_CHARACTERS, Call, call_text
from optest.torch.opinfo.calls import Unstatable
from optest.torch.opinfo.fill import array_of, digest_of

__all__ = ["one_thread", "skipped", "tensor_keys", "text_of_call"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Samples are small: threads that wait for each other cost more than the calls, twentyfold on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def text_of_call(call: Call) -> str:
    """The call as a case has it.

    Raises:
        Unstatable: if it is too long.
    """
    text = call_text(call)
    if len(text) > MOST_CHARACTERS:
        raise Unstatable(f"the call has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    return text


def skipped(function: str, name: str, dtype: str, reason: str, kind: str = "function") -> dict[str, Any]:
    """The entry of what is not asked, which says why."""
    return {
        "op": function,
        "name": name,
        "attributes": {"call": f"{function}()"},
        "tags": ["opinfo", dtype, kind],
        "skip": reason,
    }


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
