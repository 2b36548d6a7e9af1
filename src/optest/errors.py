"""Exceptions for requests that cannot be carried out, each with its exit status, and helpers for their messages.

A wrong *operator* is a verdict (:mod:`optest.spec.outcome`), never one of these exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache


class OptestError(Exception):
    """Base of errors that the command line prints as a message without traceback; ``exit_status`` is the process's."""

    exit_status = 3


class InternalError(OptestError):
    """A defect of optest itself."""


class UsageError(OptestError):
    """A request that is wrong: an option, a plan, a configuration file or an argument of the Python API."""

    exit_status = 2


class OptionNotTaken(UsageError):
    """An option of a backend that the backend of the run does not take."""


class NothingSelected(OptestError):
    """A selection without cases: nothing ran, so nothing passed."""

    exit_status = 5


class UnknownName(UsageError):
    """An unknown name; the message suggests the nearest known name or alias and lists the known names.

    ``kind`` is the word for it in the message ("operator"), ``where`` its position in a file, ``meant`` the suggestion
    if the caller knows better than the spelling, and ``hint`` a last line of advice.
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
    """A known package, device or tool that this machine lacks; ``remedy`` is how to get it."""

    exit_status = 5

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what} is unavailable: {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault in a file that a user wrote, with its position.

    ``path`` is a JSON path such as ``$.cases[2].tolerance``; ``line`` counts from 1, 0 is "not known";
    ``stands_for`` is the number of faults that this one represents.
    """

    message: str
    file: str = ""
    line: int = 0
    path: str = ""
    hint: str = ""
    count: int = 1

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}" if self.line else self.file
        where = " ".join(part for part in (position, self.path) if part)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text}\n    {self.hint}" if self.hint else text


class PlanError(UsageError):
    """All faults of a plan, one line (and perhaps a hint) each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def unknown_among(kind: str, name: str, known: Sequence[str], listed_by: str) -> UsageError:
    """Return the error for a name that is not ``known``; of many known names it only names the nearest."""
    if len(known) <= _MOST_LISTED + 2:
        return UnknownName(kind, name, known)
    hint = did_you_mean(name, known, text="; did you mean {!r}?")
    return UsageError(f"unknown {kind} {name!r}{hint}\n  {listed_by} shows all {len(known)}")


_MOST_LISTED = 10


def listed_names(known: Iterable[str]) -> str:
    """Join the sorted names by commas; of more than 13 list the first 10 and the number of the others."""
    names = sorted(known)
    # Up to three more names are hardly longer than "and 3 more".
    is_short = len(names) <= _MOST_LISTED + 3
    return shortened(names, len(names) if is_short else _MOST_LISTED)


def shortened(names: Sequence[str], most: int) -> str:
    """Join the first ``most`` names by commas; append "and N more" if there are more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def plural(count: int, word: str) -> str:
    """Return ``1 case`` or ``2 cases``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, text: str = "did you mean {}?") -> str:
    """Return ``text`` with the known name nearest to ``name``, or ``otherwise`` if no known name is near."""
    near = nearest(name, known)
    return text.format(near) if near else otherwise


def nearest(name: str, known: Iterable[str], *, least: float = 0.6) -> str | None:
    """Return the known name most similar to ``name``, ignoring case, or None.

    ``least`` is the smallest accepted ratio of ``difflib``; a name with the same letters in another order also counts.
    """
    # difflib needs seconds for the text of a whole file, and the cache would keep it
    return _nearest(name, tuple(known), least) if len(name) <= _LONGEST_NAME else None


_LONGEST_NAME = 200


@lru_cache(maxsize=1024)  # a plan may have the same slip in every case
def _nearest(name: str, known: tuple[str, ...], least: float) -> str | None:
    import difflib  # slow, and most commands need no suggestion

    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=least)
    matches = matches or [folded for folded in by_folded if sorted(folded) == sorted(name.casefold())]
    return by_folded[matches[0]] if matches else None
