"""The combinations of dtypes that an operator is defined for, in few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["variants_in_words"]

_Choices = tuple[tuple[str, ...], ...]
"""For each input the dtypes of which it may have any, whatever the others have."""


def variants_in_words(variants: Iterable[Sequence[str]]) -> str:
    """``float32|float16, int64|int32`` for all four combinations; what does not go together stands behind ``;``."""
    found: list[_Choices] = [tuple((name,) for name in variant) for variant in variants]
    for place in range(max(map(len, found), default=0)):
        found = _merged(found, place)
    return "; ".join(", ".join("|".join(choices) for choices in each) for each in found)


def _merged(found: Iterable[_Choices], place: int) -> list[_Choices]:
    """With one entry for all that differ in this place alone."""
    choices: dict[tuple[object, ...], dict[str, None]] = {}
    others: dict[tuple[object, ...], _Choices] = {}
    for each in found:
        alike = (len(each), each[:place], each[place + 1 :])
        others.setdefault(alike, each)
        choices.setdefault(alike, {}).update(dict.fromkeys(each[place] if place < len(each) else ()))
    return [
        (*each[:place], tuple(choices[alike]), *each[place + 1 :]) if place < len(each) else each
        for alike, each in others.items()
    ]
