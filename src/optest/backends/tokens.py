"""Text with tokens, ``{input0}``, as it stands in a plan's commands. A token is a name and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from optest.errors import did_you_mean


class BadTemplate(ValueError):
    """Braces that do not match."""


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Replace every token; ``{{`` and ``}}`` stand for braces.

    Raises:
        BadTemplate: for a brace without its partner.
        KeyError: for a token that is not among ``tokens``.
    """
    return "".join(tokens[part] if is_token else part for is_token, part in _parts(text))


def tokens_of(text: str) -> list[str]:
    """The tokens of a text, none of one whose braces do not match."""
    try:
        return [part for is_token, part in _parts(text) if is_token]
    except BadTemplate:
        return []


def problems_of(text: str, known: Iterable[str]) -> list[str]:
    """What is wrong with ``text``, in words; nothing if :func:`expand` works with tokens of these names."""
    names = list(known)
    try:
        used = [part for is_token, part in _parts(text) if is_token]
    except BadTemplate as error:
        return [f"{text!r}: {error}"]
    return [f"{text!r}: {_unknown(name, names)}" for name in used if name not in names]


def _unknown(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known, text="; did you mean {{{}}}?")
    listed = ", ".join(f"{{{each}}}" for each in known)
    return f"unknown token {{{name}}}{hint} known: {listed}; write {{{{ and }}}} for braces"


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Pairs of (is a token, text or the token's name)."""
    at = 0
    while at < len(text):
        character = text[at]
        if character not in "{}":
            end = min((place for place in (text.find("{", at), text.find("}", at)) if place >= 0), default=len(text))
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
