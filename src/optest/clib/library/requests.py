"""What a case asks to be done otherwise in a call: nothing where there is something, too little, one thing twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from optest.clib.library.mapping_words import DtypeName

__all__ = ["NO_REQUEST", "CallRequest"]


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``backend_config.ffi.call``; a tensor is ``input:a`` or ``output:out``, as in a mapping.

    ``null`` are the pointers that are NULL when the operator runs (tensors, ``workspace``, ``descriptor``), or, for
    ``handle``, when its descriptor is made; ``null_descriptor`` the tensors whose descriptor is. A ``short`` workspace
    has one byte less than the library asked for. ``alias`` lets an output begin ``behind`` elements behind the first
    element of an input, in the input's memory; ``in_place`` lets it be the input. ``dtypes`` and ``shapes`` describe an
    output as another one than follows from the inputs. All but ``in_place`` ask for a refusal.
    """

    null: tuple[str, ...] = ()
    null_descriptor: tuple[str, ...] = ()
    workspace: Literal["short"] | None = None
    alias: Mapping[str, str] = {}
    behind: int = 1
    in_place: Mapping[str, str] = {}
    dtypes: Mapping[str, DtypeName] = {}
    shapes: Mapping[str, tuple[Annotated[int, msgspec.Meta(ge=0)], ...]] = {}

    def __bool__(self) -> bool:
        return self != NO_REQUEST

    @property
    def short_workspace(self) -> bool:
        return self.workspace == "short"

    @property
    def is_wrong(self) -> bool:
        return bool(self.null or self.null_descriptor or self.workspace or self.alias or self.dtypes or self.shapes)


NO_REQUEST = CallRequest()
