"""Text types of a mapping that the schema reads and validates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optest.errors import did_you_mean
from optest.spec import TensorSpec, dtype_names

# Kinds of wrong calls.
REFUSALS = {
    "dtype": "a dtype that the operator does not have, or tensors of several",
    "shape": "tensors whose shapes do not fit one another, or of a rank that the operator does not have",
    "stride-0-output": "an output with several elements at one address",
    "overlap": "an output that overlaps an input, and is not that input with its layout",
    "null": "NULL in place of data, a workspace or an operator descriptor",
    "null-descriptor": "NULL in place of a handle or a tensor descriptor",
    "workspace": "a workspace that is too short",
    "index": "an index that a tensor does not have",
    "device": "a device that the machine does not have",
}
SAME = "same"  # In dtypes_of: the dtype that the other tensors share.
SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<dim>-?[0-9]{1,2})\]|\.dtype)")  # A size of a tensor, or its dtype.
_DIMENSION = re.compile(r"([A-Za-z_]\w*|[0-9]{1,9})(\.\.\.)?")
_RANK = re.compile(r"([A-Za-z_]\w*-)?[0-9]{1,2}")


class Word(str):
    """Any text; YAML's ``null`` and integers count as text, quoted or not."""

    __slots__ = ()

    @classmethod
    def read(cls, value: Any) -> Word:
        """Return the value as a word; raise ValueError with the reason if it is invalid."""
        word = "null" if value is None else str(value) if type(value) is int else value
        if not isinstance(word, str):
            raise ValueError(f"Expected `str`, got `{type(word).__name__}`")
        why = cls.wrong(word)
        if why:
            raise ValueError(f"{word!r} {why}")
        return cls(word)

    @staticmethod
    def wrong(_word: str) -> str:
        """Return why the text is invalid; empty if it is valid."""
        return ""


class Refusal(Word):
    """One of :data:`REFUSALS`."""

    @staticmethod
    def wrong(word: str) -> str:
        hint = did_you_mean(word, REFUSALS, text="did you mean {}? ")
        return "" if word in REFUSALS else f"is no kind of wrong call; {hint}known: {', '.join(REFUSALS)}"


class DtypeName(Word):
    @staticmethod
    def wrong(word: str) -> str:
        hint = did_you_mean(word, dtype_names(), text="; did you mean {}?")
        return "" if word in dtype_names() else f"is no dtype{hint}"


class DtypeOrSame(DtypeName):
    @staticmethod
    def wrong(word: str) -> str:
        return "" if word == SAME else DtypeName.wrong(word)


class Dimension(Word):
    """A name, a name with dots for any number of dimensions, or a size."""

    @staticmethod
    def wrong(word: str) -> str:
        known = "a name such as m, n... for any number of dimensions, or a size such as 3"
        return "" if _DIMENSION.fullmatch(word) else f"should be {known}"


class DimensionOf(Word):
    @staticmethod
    def wrong(word: str) -> str:
        size = SIZE.fullmatch(word)
        return "" if size and size["dim"] else "should be a tensor's dimension, as in cos[0]"

    @property
    def tensor(self) -> str:
        return self.partition("[")[0]

    @property
    def axis(self) -> int:
        return int(self.partition("[")[2].rstrip("]"))


class Rank(Word):
    """A number of dimensions, or another tensor's rank less a number: ``input-2``."""

    @staticmethod
    def wrong(word: str) -> str:
        known = "a number of dimensions, or another tensor's rank less a number, as in input-2"
        return "" if _RANK.fullmatch(word) else f"should be {known}"

    @property
    def tensor(self) -> str:
        return self.rpartition("-")[0]

    def among(self, tensors: Mapping[str, TensorSpec]) -> int | None:
        """Return the number of dimensions; None if the named tensor is omitted."""
        number = int(self.rpartition("-")[2])
        if not self.tensor:
            return number
        return tensors[self.tensor].rank - number if self.tensor in tensors else None


def read_word(kind: type, value: Any) -> Any:
    """Convert a value to a word type: msgspec's hook for types that it does not know."""
    return kind.read(value)  # type: ignore[attr-defined]
