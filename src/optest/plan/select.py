"""Which cases are run: globs over ids, tags, operators, and ``-k`` expressions. What matches nothing is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from itertools import islice, product
from typing import TypeAlias

from optest.errors import UnknownName, UsageError, did_you_mean
from optest.spec import TestCase

Predicate: TypeAlias = Callable[[str], bool]
_MOST_NAMED = 12


def select(
    cases: Iterable[TestCase],
    *,
    keyword: str = "",
    globs: Sequence[str] = (),
    tags: Sequence[str] = (),
    skip_tags: Sequence[str] = (),
    ops: Sequence[str] = (),
    priority_max: int | None = None,
    shard: tuple[int, int] | None = None,
) -> list[TestCase]:
    """Return the cases that pass every filter, in order.

    ``globs`` match whole ids, as :func:`matching_ids` reads them; ``tags`` keep cases with one of them, ``skip_tags``
    drop these; ``ops`` are names or aliases of operators; ``priority_max`` keeps cases that are as urgent; ``shard``
    (2, 5) is the second of five parts.

    Raises:
        UnknownName: for a tag or operator that no case has, with the nearest that one has.
        UsageError: for a glob that no id matches, or a ``-k`` expression that cannot be read.
    """
    kept = list(cases)
    matches = parse_keyword(keyword) if keyword.strip() else None
    known_tags = {tag for case in kept for tag in case.tags}
    for tag in (*tags, *skip_tags):
        if tag not in known_tags:
            raise UnknownName("tag", tag, known_tags)
    descriptors = {case.descriptor.name: case.descriptor for case in kept}
    names = {alias: each.name for each in descriptors.values() for alias in (each.name, *each.aliases)}
    for name in ops:
        if name not in names:
            raise UnknownName("operator", name, descriptors)
    op_names = {names[name] for name in ops}
    ids = _ids(kept, globs)
    if op_names:
        kept = [case for case in kept if case.descriptor.name in op_names]
    if globs:
        kept = [case for case in kept if case.id in ids]
    if tags:
        kept = [case for case in kept if not set(tags).isdisjoint(case.tags)]
    if skip_tags:
        kept = [case for case in kept if set(skip_tags).isdisjoint(case.tags)]
    if priority_max is not None:
        kept = [case for case in kept if case.priority <= priority_max]
    if matches is not None:
        kept = [case for case in kept if matches("\n".join((case.id, case.descriptor.name, *case.tags)).casefold())]
    if shard is not None:
        kept = [case for case in kept if in_shard(case, *shard)]
    return kept


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``2/5``, the second of five parts.

    Raises:
        UsageError: for any other form, or a part that does not exist.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise UsageError(f"--shard is {text!r}, but should be like 2/5, the second of five parts")
    return index, count


def in_shard(case: TestCase, index: int, count: int) -> bool:
    """Whether a case is in part ``index`` of ``count``: a matter of its key alone, so that no other case moves it.

    Cases that compute the same have one key, and share one execution in one part.
    """
    return int(case.key.rpartition(":")[2], 16) % count == index - 1


def by_urgency(cases: Sequence[TestCase]) -> list[TestCase]:
    """The most urgent first; cases that are as urgent keep their order."""
    return sorted(cases, key=lambda case: case.priority)


def _ids(cases: Sequence[TestCase], globs: Sequence[str]) -> set[str]:
    if not globs:
        return set()
    ids = [case.id for case in cases]
    found: set[str] = set()
    for glob in globs:
        matching = matching_ids(glob, ids)
        if not matching:
            there = f"there are {', '.join(ids)}" if len(ids) <= _MOST_NAMED else f"such as {ids[0]!r} and {ids[-1]!r}"
            hint = did_you_mean(glob, ids, there, text="did you mean {!r}?")
            if matching_ids(f"{glob}/*", ids):
                hint = f"did you mean {f'{glob}/*'!r}?"
            raise UsageError(f"no case matches --case {glob!r}; {hint}")
        found |= matching
    return found


_MOST_READINGS = 256
"""Largest number of readings of a glob: eight pairs of brackets, each as text and as a set."""
_SCENE = re.compile(r"(?:.*::)?(?P<scene>\w+)\[[^\]]*\]::(?P<case>.*)", re.DOTALL)


def matching_ids(glob: str, ids: Iterable[str]) -> set[str]:
    """Return the ids that a glob of ``*``, ``?`` and ``[abc]`` matches as a whole.

    Of a scene, ``Foo[cpusim]::case``, the glob may also match ``case``, ``::case``, ``Foo::case`` or ``Foo::``.
    Ids contain brackets, so these are text first; only if no id matches, each pair may also be a set of characters.
    """
    names = {each: (each, *_short_names(each)) for each in ids}
    parts = re.split(r"(\[[^\]]+\])", glob)
    choices = [dict.fromkeys((part.replace("[", "[[]"), part)[: 1 + index % 2]) for index, part in enumerate(parts)]
    readings = islice(product(*choices), _MOST_READINGS)
    with_sets = re.compile("|".join(translate("".join(reading)) for reading in readings))
    for pattern in (glob_pattern(glob), with_sets):
        if selected := {each for each, spellings in names.items() if any(map(pattern.fullmatch, spellings))}:
            return selected
    return set()


def _short_names(name: str) -> tuple[str, ...]:
    if (match := _SCENE.fullmatch(name)) is None:
        return ()
    scene, case = match["scene"], match["case"]
    return case, f"::{case}", f"{scene}::{case}", f"{scene}::"


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Compile a glob whose only wildcards are ``*`` and ``?``: brackets are text."""
    return re.compile(translate(glob.replace("[", "[[]")))


_TOKEN = re.compile(r"""\s*(?P<token>[()]|"[^"]*"|'[^']*'|[^\s()"']+)""")


def parse_keyword(expression: str) -> Predicate:
    """Read ``matmul and not (fp16 or "64x128, 128x32")`` into a test of case-folded text.

    A word, or text in quotes, holds if the text contains it in any case. ``not`` binds before ``and``, ``and``
    before ``or``.

    Raises:
        UsageError: with a caret under the place that cannot be read.
    """
    return _KeywordParser(expression).parse()


MAX_NESTING = 50


class _KeywordParser:
    """Recursive descent over the tokens, each with its column."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.tokens: list[tuple[str, int]] = []
        self.position = 0
        self.depth = 0
        at = 0
        while expression[at:].strip():
            match = _TOKEN.match(expression, at)
            if match is None:
                raise self._fault("a quote is not closed", len(expression) - len(expression[at:].lstrip()))
            self.tokens.append((match["token"], match.start("token")))
            at = match.end()

    def parse(self) -> Predicate:
        found = self._joined_by("or")
        if self.position < len(self.tokens):
            raise self._fault("expected 'and' or 'or'", hint=self._whole_name())
        return found

    def _joined_by(self, word: str) -> Predicate:
        """Terms with ``or`` between them, each of terms with ``and`` between them."""
        parts = [self._joined_by("and") if word == "or" else self._term()]
        while self._take(word):
            parts.append(self._joined_by("and") if word == "or" else self._term())
        if len(parts) == 1:
            return parts[0]
        holds = any if word == "or" else all
        return lambda text: holds(part(text) for part in parts)

    def _term(self) -> Predicate:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self._fault(f"nesting is more than {MAX_NESTING} levels deep")
        if self._take("not"):
            inner = self._term()
            found: Predicate = lambda text: not inner(text)  # noqa: E731
        elif self._take("("):
            found = self._joined_by("or")
            if not self._take(")"):
                raise self._fault("expected ')'")
        else:
            found = self._word()
        self.depth -= 1
        return found

    def _word(self) -> Predicate:
        token = self.tokens[self.position][0] if self.position < len(self.tokens) else ""
        if token in ("", ")", "and", "or"):
            raise self._fault("expected a word, 'not' or '('")
        self.position += 1
        word = (token[1:-1] if token[0] in "\"'" else token).casefold()
        return lambda text: word in text

    def _take(self, token: str) -> bool:
        if self.position < len(self.tokens) and self.tokens[self.position][0] == token:
            self.position += 1
            return True
        return False

    def _whole_name(self) -> str:
        """What to write if the expression is just a name with spaces."""
        if not all(token[0] not in "()\"'" and token not in ("and", "or", "not") for token, _ in self.tokens):
            return ""
        name = " ".join(token for token, _ in self.tokens)
        return f"\n  a name with spaces is selected with --case '{name}', a part of one with -k '\"{name}\"'"

    def _fault(self, message: str, column: int | None = None, *, hint: str = "") -> UsageError:
        if column is None:
            at_end = self.position >= len(self.tokens)
            column = len(self.expression) if at_end else self.tokens[self.position][1]
        return UsageError(f"-k cannot be read: {message}\n  {self.expression}\n  {' ' * column}^{hint}")
