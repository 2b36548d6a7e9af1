"""Quick construction of nouns, where thousands are made in every second of a run.

A frozen dataclass fills its fields one by one through ``object.__setattr__``, which costs 0.1 µs each. Its twin
has the same slots, is not frozen, and makes each object one of the frozen class as soon as it is filled; the object
is the same in every respect, and ``__post_init__`` checks it as always.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Noun = TypeVar("Noun")
MANY_OBJECTS = 100_000


def constructor(noun: type[Noun]) -> type[Noun]:
    """What takes the keyword arguments of ``noun`` and returns a new one; typed, and called, as the class is.

    Raises:
        TypeError: if ``noun`` is no slotted dataclass without bases.
    """
    if not dataclasses.is_dataclass(noun) or noun.__mro__ != (noun, object) or "__slots__" not in vars(noun):
        raise TypeError(f"{noun.__name__} should be a slotted dataclass without bases")
    check = vars(noun).get("__post_init__")

    def become(self: Any) -> None:
        self.__class__ = noun

    def become_and_check(self: Any) -> None:
        self.__class__ = noun
        check(self)  # type: ignore[misc]

    fields = [(each.name, Any, _like(each)) for each in dataclasses.fields(noun)]
    twin: Any = dataclasses.make_dataclass(
        f"{noun.__name__}InTheMaking",
        fields,
        namespace={"__post_init__": become if check is None else become_and_check},
        kw_only=True,
        slots=True,
    )
    return twin  # type: ignore[no-any-return]


def _like(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, init=field.init)
    if field.default is not dataclasses.MISSING:
        return dataclasses.field(default=field.default, init=field.init)
    return dataclasses.field(init=field.init)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Making many small objects that all live on triples in cost when the cyclic collector looks at them.

    Of very many it does not look at any later either: they live as long as the run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > MANY_OBJECTS:
                gc.freeze()
            gc.enable()
