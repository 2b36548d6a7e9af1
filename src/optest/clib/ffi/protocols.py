"""Operators of four functions (create, workspace, run, destroy), found in a library by the names of these."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

__all__ = ["OperatorFunctions", "find_operators"]

_CREATE = re.compile(r"(?P<prefix>\w*?)[Cc]reate_?(?P<name>\w+?)_?[Dd]esc(riptor)?")
_BESIDE = {
    "workspace": r"{prefix}[Gg]et_?{name}_?[Ww]orkspace(_?[Ss]ize)?",
    "run": r"{prefix}(Execute|Run)?{name}",
    "destroy": r"{prefix}[Dd]estroy_?{name}_?[Dd]esc(riptor)?",
}


class OperatorFunctions(NamedTuple):
    """The functions of one operator; ``workspace`` is empty where it has none."""

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
    forms, create = _BESIDE, _CREATE
    if patterns is not None:
        forms = {part: patterns[part] for part in _BESIDE}
        create = re.compile(re.escape(patterns["create"]).replace(re.escape("{name}"), "(?P<name>.+)"))
    found = {}
    for function in sorted(functions):
        match = create.fullmatch(function)
        if match is None:
            continue
        of_it = [each for each in functions if match["name"] in each]
        shortest = {}
        for part, form in forms.items():
            named = re.compile(form.format(**match.groupdict()))
            shortest[part] = min(filter(named.fullmatch, of_it), key=len, default="")
        if shortest["run"] and shortest["destroy"]:
            found[match["name"]] = OperatorFunctions(create=function, **shortest)
    return found
