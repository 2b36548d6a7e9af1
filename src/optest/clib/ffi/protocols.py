"""Operators of four functions (create, workspace, run, destroy), found in a library by the names of these."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["OperatorFunctions", "find_operators"]

_CREATE = re.compile(r"(?P<prefix>\w*?)(?P<verb>[Cc]reate_?)(?P<name>\w+?)(?P<suffix>_?[Dd]esc(?:riptor)?)")
_WORKSPACE = (r"[Gg]et_?", r"_?[Ww]orkspace(_?[Ss]ize)?")
_DESTROY = (r"[Dd]estroy_?", r"_?[Dd]esc(riptor)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFunctions:
    """The functions of one operator under its name in C; ``workspace`` is empty where it has none."""

    name: str
    create: str
    workspace: str
    run: str
    destroy: str


def find_operators(
    functions: Collection[str], patterns: Mapping[str, str] | None = None
) -> dict[str, OperatorFunctions]:
    """Operators by their name in C: each has a function that creates a descriptor, one that runs it, and one that
    destroys it.

    ``patterns`` are names with ``{name}`` for ``create``, ``workspace``, ``run`` and ``destroy``. Without them, names
    such as ``xCreateAddDescriptor`` with ``xAdd``, or ``x_create_add_descriptor`` with ``x_add``, are taken for it.
    """
    known = sorted(functions)
    found = _guessed(known) if patterns is None else _stated(known, patterns)
    return {each.name: each for each in found}


def _stated(known: Collection[str], patterns: Mapping[str, str]) -> Iterator[OperatorFunctions]:
    head, _, tail = patterns["create"].partition("{name}")
    for function in known:
        if not function.startswith(head) or not function.endswith(tail) or len(function) <= len(head) + len(tail):
            continue
        name = function[len(head) : len(function) - len(tail)]
        named = {part: pattern.replace("{name}", name) for part, pattern in patterns.items()}
        if named["run"] in known and named["destroy"] in known:
            named["workspace"] = named["workspace"] if named["workspace"] in known else ""
            yield OperatorFunctions(name=name, **named)


def _guessed(known: Collection[str]) -> Iterator[OperatorFunctions]:
    for function in known:
        match = _CREATE.fullmatch(function)
        if match is None:
            continue
        prefix, name = match["prefix"], match["name"]
        run = next(
            (each for each in (prefix + name, f"{prefix}Execute{name}", f"{prefix}Run{name}") if each in known), ""
        )
        destroy = _beside(prefix, name, *_DESTROY, known)
        if run and destroy:
            workspace = _beside(prefix, name, *_WORKSPACE, known)
            yield OperatorFunctions(name=name, create=function, workspace=workspace, run=run, destroy=destroy)


def _beside(prefix: str, name: str, verb: str, suffix: str, known: Collection[str]) -> str:
    """The function of the same prefix and operator with another verb; empty if there is none."""
    pattern = re.compile(f"{re.escape(prefix)}{verb}{re.escape(name)}{suffix}")
    return next((each for each in known if pattern.fullmatch(each)), "")
