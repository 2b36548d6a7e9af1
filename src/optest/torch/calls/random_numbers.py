"""Random numbers that a call draws though torch's own draws none: what a model draws next is not what it would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from optest.spec import Fault, Reason
from optest.torch.calls.calling import TorchCall
from optest.torch.calls.cpu_tensors import copied

__all__ = ["may_draw", "random_numbers_kept"]

_CPU = torch.device("cpu")


@contextmanager
def random_numbers_kept(who: str, unless: Callable[[], bool]) -> Iterator[None]:
    """While inside, torch's random numbers may not be drawn, ``unless`` it is in the nature of the call.

    Raises:
        Fault: STATE, where nothing else is raised.
    """
    found = torch.get_rng_state()
    torch.rand(1)  # or who seeds them each time would leave them as the first call did
    before = torch.get_rng_state()
    try:
        yield
        is_kept = torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_rng_state(found)
    if not is_kept and not unless():
        raise Fault(
            Reason.STATE,
            f"{who} drew random numbers of torch, or seeded them, though the call needs none: what a model draws next "
            "is not what it would draw",
        )


def may_draw(call: TorchCall, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether torch makes the call of an operator that draws for some values: ``rrelu`` does so for negative ones."""
    with torch.no_grad(), torch.random.fork_rng(devices=()), _Operators() as seen:
        call.on([copied(each.detach()).to(_CPU) for each in tensors], _CPU)()
    return bool(seen.may_draw)


class _Operators(TorchDispatchMode):  # type: ignore[misc] # torch leaves it without types
    def __init__(self) -> None:
        super().__init__()
        self.may_draw = False

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.may_draw |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))
