"""What can go wrong with a request, each with the exit status that tells it from a wrong operator.

A wrong *operator* is a verdict (:mod:`optest.spec.outcome`), never one of these exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache


class OptestError(Exception):
    """Anything that optest says in one sentence instead of a traceback."""

    exit_status = 3


class InternalError(OptestError):
    """optest itself is at fault."""


class UsageError(OptestError):
    """A request that cannot be carried out as it was written."""

    exit_status = 2


class NothingSelected(OptestError):
    """No case was left to run; nothing was shown, so nothing passed."""

    exit_status = 5


class UnknownName(UsageError):
    """A name that is in no registry; the message suggests the nearest and lists the known ones, without ``aliases``.

    ``meant`` is what the name is called here, where it is known from elsewhere; ``hint`` a last line for who knows it.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        *,
        aliases: Iterable[str] = (),
        where: str = "",
        meant: str | None = None,
        hint: str = "",
    ) -> None:
        self.kind = kind
        self.hint = hint
        self.name = name
        self.known = tuple(dict.fromkeys(known))
        self.suggestion = meant or nearest(name, (*aliases, *self.known))
        near = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        listed = f"\n  known: {listed_names(self.known)}" if self.known else ""
        at, last = (f"\n  {word}{text}" if text else "" for word, text in (("at ", where), ("", hint)))
        super().__init__(f"unknown {kind} {name!r}{near}{at}{listed}{last}")


class Unavailable(OptestError):
    """Something known that this machine lacks, with what to do about it."""

    exit_status = 5

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what} is unavailable: {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault in something that a person wrote, and where it stands.

    ``path`` is a JSON path such as ``$.cases[2].tolerance``; ``line`` counts from 1, 0 is "not known";
    ``stands_for`` counts the faults that this one tells of.
    """

    message: str
    file: str = ""
    line: int = 0
    path: str = ""
    hint: str = ""
    stands_for: int = 1

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        where = " ".join(part for part in (place, self.path) if part)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text}\n    {self.hint}" if self.hint else text


class PlanError(UsageError):
    """Everything that is wrong with a plan, all at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


_LISTED = 10


def listed_names(known: Iterable[str]) -> str:
    """Known names in order, the first of them where there are many."""
    names = sorted(known)
    is_short = len(names) <= _LISTED + 3  # the rest is then as long as the words for it
    return shortened(names, len(names) if is_short else _LISTED)


def shortened(names: Sequence[str], most: int) -> str:
    """The first names, at most so many, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def plural(count: int, word: str) -> str:
    """Return ``1 case`` or ``2 cases``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, text: str = "did you mean {}?") -> str:
    """``text`` with the known name that a person most likely meant, ``otherwise`` if none is near."""
    near = nearest(name, known)
    return text.format(near) if near else otherwise


def nearest(name: str, known: Iterable[str], *, least: float = 0.6) -> str | None:
    """Return the known name that a person most likely meant, or None; ``least`` is difflib's ratio."""
    # difflib needs seconds for the text of a whole file, and the cache would keep it
    return _nearest(name, tuple(known), least) if len(name) <= _LONGEST_NAME else None


_LONGEST_NAME = 200


@lru_cache(maxsize=1024)  # a plan may have the same slip in every case
def _nearest(name: str, known: tuple[str, ...], least: float) -> str | None:
    by_folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=least)
    found = found or [each for each in by_folded if sorted(each) == sorted(name.casefold())]
    return by_folded[found[0]] if found else None
