"""The plans that a plan includes: found beside it, read once each, their faults told with its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from optest.errors import PlanError, Problem
from optest.plan.source import MAX_BYTES, Path, format_path
from optest.store import PathError, read_regular, resolve_path

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["follow_includes", "without_detours"]

MAX_INCLUDED = 1000
MAX_CHAIN = 32
"""How many files may include each other one by one; reading them goes as deep."""


def follow_includes(
    document: PlanDocument, parse: Callable[[bytes, str, str], PlanDocument], *, below: Sequence[str]
) -> Iterator[Problem]:
    """Read what ``document`` includes, and so on, and yield what is wrong with the files as such.

    ``parse`` reads the text of one plan, and takes what its model is called, "" for its own name. With ``below``,
    only files in these folders and below them are opened: an untrusted plan could otherwise show what stands in any
    file that its user may read.
    """
    reader = _Reader(parse, below)
    yield from reader.follow(document, (os.path.realpath(document.path),))


class _Reader:
    def __init__(self, parse: Callable[[bytes, str, str], PlanDocument], below: Sequence[str]) -> None:
        self.parse = parse
        self.below = below
        self.first: dict[str, str] = {}
        """Where each file was included first."""

    def follow(self, document: PlanDocument, above: tuple[str, ...]) -> Iterator[Problem]:
        """``above`` are the files that lead here, the document's own as the last."""
        found: list[PlanDocument] = []
        for place, (name, model, expectations) in document.included_files():
            file = without_detours(os.path.join(os.path.dirname(document.path), name))
            real, message = self._place(file, above)
            raw = b""
            if not message:
                self.first[real] = document.where(place)
                try:
                    raw = read_regular(file, MAX_BYTES)
                except PathError as error:
                    message = str(error)
            if message:
                yield _problem(document, place, message)
                continue
            try:
                included = self.parse(raw, file, model)
            except PlanError as error:  # what cannot be read at all is told beside everything else
                yield from error.problems
                continue
            found.append(included)
            if expectations:
                message = self._expect(document, included, expectations)
                if message:
                    yield _problem(document, (*place, "expectations"), message)
            if model and not included.model:
                message = f"{file} is given the name {model!r}, but holds no cases of a model"
                yield _problem(document, (*place, "model"), message)
            yield from self.follow(included, (*above, real))
        document._included = tuple(found)

    def _expect(self, document: PlanDocument, included: PlanDocument, name: str) -> str:
        """Note the file of what is known of the included cases, or say why it is not opened."""
        file = without_detours(os.path.join(os.path.dirname(document.path), name))
        try:
            included._expectations = os.fspath(resolve_path("", file, self.below))
        except PathError as error:
            return str(error)
        return "" if os.path.exists(file) else f"{file} is not there"

    def _place(self, file: str, above: tuple[str, ...]) -> tuple[str, str]:
        """Where a file lies, and why it is not opened."""
        try:
            path = resolve_path("", file, self.below)
        except PathError as error:
            return "", str(error)
        real = os.path.realpath(path)
        return real, self._objection(file, real, above)

    def _objection(self, file: str, real: str, above: tuple[str, ...]) -> str:
        if len(above) > MAX_CHAIN:
            return f"{file} is the end of a chain of more than {MAX_CHAIN} plans that include each other"
        if real in above:
            way = [os.path.basename(each) for each in (*above[above.index(real) :], real)]
            return f"{file} includes itself: {' -> '.join(way)}"
        if real in self.first:
            return f"{file} is included twice, first at {self.first[real]}"
        if len(self.first) >= MAX_INCLUDED:
            return f"more than {MAX_INCLUDED} plans are included"
        return ""


def _problem(document: PlanDocument, place: Path, message: str) -> Problem:
    line = document.source.line_of(place)
    return Problem(message=message, file=document.path, line=line, path=format_path(place))


def without_detours(file: str) -> str:
    """``examples/x.yaml`` for ``n/../examples/x.yaml``, unless a link makes these two files."""
    short = os.path.normpath(file)
    return short if os.path.exists(short) and os.path.samefile(short, file) else file
