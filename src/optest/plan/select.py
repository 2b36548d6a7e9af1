"""Selection of cases: globs over ids, tags, operators, and ``-k`` expressions. A filter without a match is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from itertools import islice, product
from typing import TypeAlias

from optest.errors import UnknownName, UsageError, did_you_mean
from optest.spec import TestCase

Predicate: TypeAlias = Callable[[str], bool]
# Whether a case may be selected, by the beginning of its id, which is the whole id if the second argument is true.
Wanted: TypeAlias = Callable[[str, bool], bool]
# Longest list of ids in a message.
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

    ``globs`` match whole ids, see :func:`matching_ids`. ``tags`` keep cases with one of them, ``skip_tags`` drop them.
    ``ops`` are names or aliases of operators, ``priority_max`` is the largest priority number, and ``shard`` (2, 5) is
    the second of five parts.

    Raises:
        UnknownName: for a tag or operator that no case has, with the nearest existing one.
        UsageError: for a glob that no id matches, or an invalid ``-k`` expression.
    """
    kept = list(cases)
    matches = parse_keyword(keyword) if keyword.strip() else None
    known_tags = {tag for case in kept for tag in case.tags}
    for tag in (*tags, *skip_tags):
        if tag not in known_tags:
            raise UnknownName("tag", tag, known_tags)
    descriptors = {case.descriptor.name: case.descriptor for case in kept}
    names = {alias: x.name for x in descriptors.values() for alias in (x.name, *x.aliases)}
    for name in ops:
        if name not in names:
            raise UnknownName("operator", name, descriptors)
    op_names = {names[name] for name in ops}
    ids = _ids_of_globs(kept, globs)
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
        # Newlines keep a word from matching across two names.
        kept = [case for case in kept if matches("\n".join((case.id, case.descriptor.name, *case.tags)).casefold())]
    if shard is not None:
        kept = [case for case in kept if in_shard(case, *shard)]
    return kept


def glob_filter(globs: Sequence[str]) -> Wanted | None:
    """Return a function that is false only for ids that no glob matches, in any reading; None without globs."""
    if not globs:
        return None
    patterns = [[_pattern_of(part) for part in re.findall(r"\[[^\]]+\]|.", glob, re.DOTALL)] for glob in globs]
    whole = re.compile("|".join(map("".join, patterns)), re.DOTALL)
    begun = re.compile("|".join(map(_begun, patterns)), re.DOTALL)

    def may_match(head: str, is_whole: bool) -> bool:
        # The parts of a scene's id are its short names.
        return "::" in head or (whole if is_whole else begun).fullmatch(head) is not None

    return may_match


def _pattern_of(part: str) -> str:
    """Return the pattern of one character of a glob, or of a pair of brackets, which is a set or text."""
    if len(part) > 1:
        as_set = translate(part).removeprefix("(?s:").rpartition(")")[0]
        return f"(?:{as_set}|{''.join(map(_pattern_of, part))})"
    return {"*": ".*", "?": "."}.get(part) or re.escape(part)


# Nested groups of a pattern; the compiler of `re` recurses.
_MOST_NESTED = 60


def _begun(patterns: Sequence[str]) -> str:
    """Return a pattern of the texts with which a match of the joined patterns may begin, and of a few others."""
    pattern = ".*" if len(patterns) > _MOST_NESTED else ""
    for part in reversed(patterns[:_MOST_NESTED]):
        # A text may end within brackets that are read as text.
        pattern = rf"(?:{part}{pattern}|\[.*)?" if part.startswith("(?:") else f"(?:{part}{pattern})?"
    return pattern


def parse_shard(text: str) -> tuple[int, int]:
    """Return index and count of ``2/5``, the second of five parts; raise UsageError for any other form."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise UsageError(f"--shard is {text!r}, expected a form like 2/5, the second of five parts")
    return index, count


def in_shard(case: TestCase, index: int, count: int) -> bool:
    """Return whether a case is in part ``index`` (from 1) of ``count``."""
    # By its key only: other cases do not move it, and equal computations, which have one key, share one execution.
    return int(case.key.rpartition(":")[2], 16) % count == index - 1


def sorted_by_priority(cases: Sequence[TestCase]) -> list[TestCase]:
    """Return the cases by ascending priority number; equal ones keep their order."""
    return sorted(cases, key=lambda case: case.priority)


def _ids_of_globs(cases: Sequence[TestCase], globs: Sequence[str]) -> set[str]:
    """Return the ids that match one of the globs; raise UsageError for a glob that matches none."""
    if not globs:
        return set()
    ids = [case.id for case in cases]
    selected: set[str] = set()
    for glob in globs:
        matching = matching_ids(glob, ids)
        if not matching:
            listed = f"ids: {', '.join(ids)}" if len(ids) <= _MOST_NAMED else f"such as {ids[0]!r} and {ids[-1]!r}"
            hint = did_you_mean(glob, ids, listed, text="did you mean {!r}?")
            if matching_ids(f"{glob}/*", ids):
                hint = f"did you mean {f'{glob}/*'!r}?"
            raise UsageError(f"no case matches --case {glob!r}; {hint}")
        selected |= matching
    return selected


# Readings of a glob: eight pairs of brackets, each as text and as a set. More would make the pattern too long.
_MOST_READINGS = 256
# Name and case of the id of a scene.
_SCENE = re.compile(r"(?:.*::)?(\w+)\[[^\]]*\]::(.*)", re.DOTALL)


def matching_ids(glob: str, ids: Iterable[str]) -> set[str]:
    """Return the ids that a glob of ``*``, ``?`` and ``[abc]`` matches as a whole.

    The id ``Foo[cpusim]::case`` of a scene also matches as ``case``, ``::case``, ``Foo::case`` or ``Foo::``.
    """
    # Ids contain brackets, so they are text first; if no id matches, each pair may also be a set of characters.
    names: dict[str, tuple[str, ...]] = {}
    for x in ids:
        match = _SCENE.fullmatch(x)
        scene, case = match.groups() if match else ("", "")
        names[x] = (x, case, f"::{case}", f"{scene}::{case}", f"{scene}::") if match else (x,)
    parts = re.split(r"(\[[^\]]+\])", glob)
    choices = [dict.fromkeys((part.replace("[", "[[]"), part)[: 1 + index % 2]) for index, part in enumerate(parts)]
    readings = islice(product(*choices), _MOST_READINGS)
    with_sets = re.compile("|".join(translate("".join(reading)) for reading in readings))
    for pattern in (glob_pattern(glob), with_sets):
        if selected := {x for x, spellings in names.items() if any(map(pattern.fullmatch, spellings))}:
            return selected
    return set()


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return the pattern of a glob whose only wildcards are ``*`` and ``?``; brackets are text."""
    return re.compile(translate(glob.replace("[", "[[]")))


_TOKEN = re.compile(r"""\s*(?P<token>[()]|"[^"]*"|'[^']*'|[^\s()"']+)""")


def parse_keyword(expression: str) -> Predicate:
    """Return a predicate on case-folded text for an expression such as ``matmul and not (fp16 or "64x128, 128x32")``.

    A word, or text in quotes, is true if the text contains it in any case; ``not`` binds first, then ``and``. A wrong
    expression raises UsageError.
    """
    return _KeywordParser(expression).parse()


# The parser recurses, and an expression may come from another program.
MAX_NESTING = 50


class _KeywordParser:
    """Recursive-descent parser of a ``-k`` expression; each token has its column."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.tokens: list[tuple[str, int]] = []
        self.position = 0
        self.depth = 0
        start = 0
        while expression[start:].strip():
            match = _TOKEN.match(expression, start)
            if match is None:
                raise self._error("a quote is not closed", len(expression) - len(expression[start:].lstrip()))
            self.tokens.append((match["token"], match.start("token")))
            start = match.end()

    def parse(self) -> Predicate:
        predicate = self._parse_terms("or")
        if self.position < len(self.tokens):
            raise self._error("expected 'and' or 'or'", hint=self._hint_for_name())
        return predicate

    def _parse_terms(self, word: str) -> Predicate:
        """Parse terms joined by ``word``; each term of ``or`` consists of terms joined by ``and``."""
        parts = [self._parse_terms("and") if word == "or" else self._parse_term()]
        while self._take(word):
            parts.append(self._parse_terms("and") if word == "or" else self._parse_term())
        if len(parts) == 1:
            return parts[0]
        holds = any if word == "or" else all
        return lambda text: holds(part(text) for part in parts)

    def _parse_term(self) -> Predicate:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self._error(f"nesting is more than {MAX_NESTING} levels deep")
        if self._take("not"):
            inner = self._parse_term()
            predicate: Predicate = lambda text: not inner(text)  # noqa: E731
        elif self._take("("):
            predicate = self._parse_terms("or")
            if not self._take(")"):
                raise self._error("expected ')'")
        else:
            token = self.tokens[self.position][0] if self.position < len(self.tokens) else ""
            if token in ("", ")", "and", "or"):
                raise self._error("expected a word, 'not' or '('")
            self.position += 1
            word = (token[1:-1] if token[0] in "\"'" else token).casefold()
            predicate = lambda text: word in text  # noqa: E731
        self.depth -= 1
        return predicate

    def _take(self, token: str) -> bool:
        """Consume the next token if it is this one; return whether it was."""
        if self.position < len(self.tokens) and self.tokens[self.position][0] == token:
            self.position += 1
            return True
        return False

    def _hint_for_name(self) -> str:
        """Return how to select a name with spaces if the expression is only that, else ""."""
        if not all(token[0] not in "()\"'" and token not in ("and", "or", "not") for token, _ in self.tokens):
            return ""
        name = " ".join(token for token, _ in self.tokens)
        return f"\n  to select a name with spaces write --case '{name}', for a part of one -k '\"{name}\"'"

    def _error(self, message: str, column: int | None = None, *, hint: str = "") -> UsageError:
        if column is None:
            at_end = self.position >= len(self.tokens)
            column = len(self.expression) if at_end else self.tokens[self.position][1]
        return UsageError(f"-k cannot be read: {message}\n  {self.expression}\n  {' ' * column}^{hint}")
