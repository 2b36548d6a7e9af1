"""What cases of the same operator, kinds of tensors and attributes share: it is prepared by the first of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optest.clib.library.bound import BoundCall
from optest.clib.library.brief import BriefCall
from optest.clib.library.config import FfiConfig
from optest.clib.library.kinds import CaseKind
from optest.clib.library.memory import CaseMemory
from optest.clib.library.requests import NO_REQUEST
from optest.clib.library.roles import Entry
from optest.clib.library.subject import Described
from optest.numerics import Array

__all__ = ["DescribedCase", "DescribedCases", "key_of"]

_MOST_KEPT = 48
_MOST_BYTES = 1 << 16
"""Of the tensors of a case whose places are kept; those of a larger one go back to the pool."""


@dataclass(slots=True, kw_only=True)
class DescribedCase:
    """``passed`` are the values of the roles beside tensors, ``made`` the inputs that the operator does not have."""

    memory: CaseMemory
    subject: Described
    call: BoundCall
    passed: Mapping[str, Any]
    made: Mapping[str, Array]
    config: FfiConfig
    brief: BriefCall | None = None
    """What a case that is called once needs, after the first such case."""

    def renew(self, given: Mapping[str, Array]) -> None:
        """Put other values in; the tensors are of the same kinds."""
        self.memory.renew({**given, **self.made} if self.made else given)

    def is_for_any_values(self, entry: Entry) -> bool:
        """Whether another case differs in the values of its tensors alone: none of them is passed by value, or lies
        where another lies."""
        return self.config.call == NO_REQUEST and all(role.kind != "scalar" for role in entry.roles())


class DescribedCases:
    """The latest of them; small ones keep their memory too."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], DescribedCase] = OrderedDict()

    def get(self, key: tuple[Any, ...]) -> DescribedCase | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: tuple[Any, ...], described: DescribedCase) -> None:
        described.memory.keeps_places = described.memory.nbytes <= _MOST_BYTES
        self._kept[key] = described
        if len(self._kept) > _MOST_KEPT:
            _, oldest = self._kept.popitem(last=False)
            oldest.memory.keeps_places = False
            oldest.memory.release()


def key_of(kind: CaseKind, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What two cases have to share to be told to C alike, but for the values of their tensors."""
    return (kind, *[(array.dtype, array.shape, array.strides) for array in inputs])
