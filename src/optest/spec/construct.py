"""Fast construction of frozen dataclasses, of which a run creates thousands per second.

A frozen dataclass sets its fields one by one through ``object.__setattr__``, at 0.1 µs each. Its twin has the same
slots, is not frozen, and changes the class of each object to the frozen one in ``__post_init__``, after which the
frozen class's own checks run. The result is indistinguishable.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Frozen = TypeVar("Frozen")
MANY_OBJECTS = 100_000


def constructor(frozen: type[Frozen]) -> type[Frozen]:
    """Return a fast constructor of the dataclass ``frozen``, with the same keyword arguments and checks.

    Raises:
        TypeError: if ``frozen`` is no slotted dataclass without bases.
    """
    if not dataclasses.is_dataclass(frozen) or frozen.__mro__ != (frozen, object) or "__slots__" not in vars(frozen):
        raise TypeError(f"{frozen.__name__} is of another kind, expected a slotted dataclass without bases")
    check = vars(frozen).get("__post_init__")

    def become(self: Any) -> None:
        self.__class__ = frozen

    def become_and_check(self: Any) -> None:
        self.__class__ = frozen
        check(self)  # type: ignore[misc]

    fields = [(field.name, Any, _copy_field(field)) for field in dataclasses.fields(frozen)]
    twin: Any = dataclasses.make_dataclass(
        f"{frozen.__name__}InTheMaking",
        fields,
        namespace={"__post_init__": become if check is None else become_and_check},
        kw_only=True,
        slots=True,
    )
    return twin  # type: ignore[no-any-return]


def _copy_field(field: dataclasses.Field[Any]) -> Any:
    """Return a new dataclass field with the default and ``init`` of ``field``."""
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, init=field.init)
    if field.default is not dataclasses.MISSING:
        return dataclasses.field(default=field.default, init=field.init)
    return dataclasses.field(init=field.init)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Disable the cyclic garbage collector within the block.

    If over 100,000 objects were created, freeze them: later collections ignore them.
    """
    # The creation of many small objects that all stay alive takes three times as long if the collector visits them.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # They live as long as the run.
            if gc.get_count()[0] > MANY_OBJECTS:
                gc.freeze()
            gc.enable()
