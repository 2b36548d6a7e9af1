"""Texts with tokens, such as ``{input0}``, in the commands of a plan. A token is a name between braces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from optest.errors import did_you_mean


class BadTemplate(ValueError):
    """Braces that do not match."""


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Replace every token; ``{{`` is a brace. Raise BadTemplate for a single brace, KeyError for an unknown token."""
    return "".join(tokens[part] if is_token else part for is_token, part in _split_at_tokens(text))


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text in order, [] if its braces do not match."""
    try:
        return [part for is_token, part in _split_at_tokens(text) if is_token]
    except BadTemplate:
        return []


def problems_of(text: str, known: Iterable[str]) -> list[str]:
    """Describe each error in ``text``; return [] if :func:`expand` works with the ``known`` tokens."""
    names = list(known)
    try:
        used = [part for is_token, part in _split_at_tokens(text) if is_token]
    except BadTemplate as error:
        return [f"{text!r}: {error}"]
    listed = ", ".join(f"{{{token}}}" for token in names)
    return [
        f"{text!r}: unknown token {{{name}}}{did_you_mean(name, names, text='; did you mean {{{}}}?')} "
        f"known: {listed}; write {{{{ and }}}} for braces"
        for name in used
        if name not in names
    ]


def _split_at_tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a text as pairs of (is it a token, text or the token's name)."""
    at = 0
    while at < len(text):
        character = text[at]
        if character not in "{}":
            end = min((index for index in (text.find("{", at), text.find("}", at)) if index >= 0), default=len(text))
            yield False, text[at:end]
            at = end
        elif text.startswith(character * 2, at):
            yield False, character
            at += 2
        elif character == "}":
            raise BadTemplate("a '}' has no '{'; write }} for a brace")
        else:
            end = text.find("}", at)
            if end < 0:
                raise BadTemplate("a '{' has no '}'; write {{ for a brace")
            yield True, text[at + 1 : end]
            at = end + 1
