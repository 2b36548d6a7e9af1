"""What to try, where the facts of a failure tell more than its reason does: of a C library above all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optest.reporting.meanings import MEANINGS
from optest.reporting.typography import printable
from optest.spec import Reason

__all__ = ["NARROWER", "Narrower", "remedy_of"]

Facts = Mapping[str, Any]
"""The ``details`` of a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrower:
    """What to try for ``reason`` where ``applies`` to the facts; ``{names}`` in the remedy are facts."""

    reason: Reason
    applies: Callable[[Facts], bool]
    remedy: str


def _has(*names: str) -> Callable[[Facts], bool]:
    return lambda facts: all(name in facts for name in names)


NARROWER = (
    Narrower(
        reason=Reason.STATE,
        applies=_has("printed"),
        remedy="take the printing out of the call, or put it behind a switch that is off: whoever embeds the library "
        "finds these lines between their own, and printing takes longer than a small kernel",
    ),
    Narrower(
        reason=Reason.STATE,
        applies=_has("float_mode"),
        remedy="save the rounding mode, flush-to-zero and traps when the call begins and put them back on every way "
        "out; what the process computes afterwards is rounded by them",
    ),
    Narrower(
        reason=Reason.STATE,
        applies=_has("selected_device"),
        remedy="select the device only after it was found to be there, or select the former one again before the error "
        "is returned",
    ),
    Narrower(
        reason=Reason.EXIT_CODE,
        applies=lambda facts: "exit_code" in facts and "command" not in facts,
        remedy="look for exit, _exit and quick_exit in what was called: it should return an error in place of ending "
        "its caller; `gdb --args python -m optest` with the line below and --isolate none, then `catch syscall "
        "exit_group`, stops where it happens",
    ),
    Narrower(
        reason=Reason.RAISED,
        applies=_has("function", "status"),
        remedy="look for what makes {function} return {status}: operator and mapping allow this call; if the library "
        "has no such kernel, take it out of the mapping (dtypes, ranks) or name that status under `unsupported`",
    ),
    Narrower(
        reason=Reason.RAISED,
        applies=lambda facts: not facts.get("traceback_tail"),
        remedy="the line below raises it again",
    ),
    Narrower(
        reason=Reason.WRONG_ERROR,
        applies=_has("contradicted_by"),
        remedy="{contradicted_by} says what is right, so it is the case that has to change: make type and match of its "
        "expects_error what is said there",
    ),
    Narrower(
        reason=Reason.NOT_REFUSED,
        applies=_has("contradicted_by"),
        remedy="{contradicted_by} says what is right, so it is the case that has to change: give it inputs that are "
        "refused, or take its expects_error away",
    ),
    Narrower(
        reason=Reason.BAD_CASE,
        applies=_has("built_in_mapping"),
        remedy="no kernel was at fault: these are not the headers that the built-in mapping was written for. Copy its "
        "file, make the call what the header declares, and name the copy by --mapping; `optest ffi inspect` with "
        "--mapping tells every such place at once",
    ),
    Narrower(
        reason=Reason.BAD_CASE,
        applies=_has("mapping"),
        remedy="no kernel was at fault: mapping and header disagree. Make {mapping} what the header declares; `optest "
        "ffi inspect` with --mapping tells every such place at once",
    ),
)
"""The first that applies is told."""


def remedy_of(reason: Reason, facts: Facts) -> str:
    """What to try for a failure with these facts; no full stop."""
    for each in NARROWER:
        if each.reason is reason and each.applies(facts):
            return each.remedy.format_map({name: printable(str(value)) for name, value in facts.items()})
    return MEANINGS[reason].remedy
