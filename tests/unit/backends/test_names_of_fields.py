"""Fields of structs are set by names that are one object: a cache of Python keeps every one that it sees."""

from __future__ import annotations

from typing import Any

from optest.clib.ffi.signatures import CKind, CType, Field
from optest.clib.library.values import put


class Seeing:
    """Keeps the names that it is asked for."""

    def __init__(self, names: list[str]) -> None:
        object.__setattr__(self, "names", names)

    def __getattr__(self, name: str) -> Any:
        names = object.__getattribute__(self, "names")
        names.append(name)
        return Seeing(names)

    def __setattr__(self, name: str, value: object) -> None:
        object.__getattribute__(self, "names").append(name)


def test_field_name_is_one_interned_object() -> None:
    names: list[str] = []
    field = Field(name="eps", type=CType(kind=CKind.FLOAT, spelling="float", size=4))
    for _ in range(3):
        put(Seeing(names), ".".join(["norm", "eps"]), field, 0.5, 0)
    assert names == ["norm", "eps"] * 3
    assert len({id(name) for name in names}) == 2
