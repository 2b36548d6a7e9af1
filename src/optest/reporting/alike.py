"""Texts that say the same of different values, told once: ``has no p of 0.0, 3.0 or 4 others``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from optest.spec import dtype_names

__all__ = ["skeleton", "told_once"]

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)"
_DTYPE = "|".join(sorted(map(re.escape, dtype_names()), key=len, reverse=True))
_VALUE = re.compile(
    r"\[[^\[\]]*\]"  # a list
    r"|'[^']*'"  # a text
    r"|(?<![\w.])(?:"
    rf"(?:{_DTYPE})(?:, (?:{_DTYPE}))*(?:\[[\dx]*\])?"  # dtypes, or a tensor
    r"|\d+(?:x\d+)+"  # a shape
    rf"|{_NUMBER}|True|False|None"
    r")(?![\w.]*\w)",
)
_WIDTH = 40
"""Characters that the values of one place take, where there are more than two."""


def skeleton(text: str) -> tuple[str, ...]:
    """What texts share that differ in values alone: the words between these."""
    return tuple(_VALUE.split(text))


def told_once(texts: Mapping[str, int]) -> str:
    """One text for all, which share their :func:`skeleton`: where values differ, the commonest and how many others."""
    words = skeleton(next(iter(texts)))
    values: list[Counter[str]] = [Counter() for _ in words[1:]]
    for text, count in texts.items():
        for place, value in zip(values, _VALUE.findall(text), strict=True):
            place[value] += count
    told = [_one_of(place) for place in values]
    return "".join(part for pair in zip(words, [*told, ""], strict=True) for part in pair)


def _one_of(values: Counter[str]) -> str:
    """``0.0, 3.0 or 4 others``; one value is itself."""
    ranked = [value for value, _ in values.most_common()]
    fitting = max(2, sum(len(", ".join(ranked[: count + 1])) <= _WIDTH for count in range(len(ranked))))
    if len(ranked) - fitting <= 1:
        return _joined(ranked)
    return _joined([*ranked[:fitting], f"{len(ranked) - fitting} others"])


def _joined(shown: Sequence[str]) -> str:
    """With commas, unless a value has some of its own."""
    *first, last = shown
    if not first:
        return last
    if any(", " in each and not each.startswith("[") for each in first):
        return " or ".join([*first, last])
    return f"{', '.join(first)} or {last}"
