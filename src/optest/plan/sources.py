"""Sources of cases that are no plan: what is named after ``--source`` yields entries as a plan has them.

A source is a function ``(SourceRequest) -> Collected``, found by the word before the colon. What it needs is imported
when it is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.errors import Problem, UnknownName, UsageError
from optest.guests import Values
from optest.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """What is asked of a source.

    ``names`` are those after the colon, ``dtypes`` the ones to which the cases are narrowed, () for all that the
    source has; ``device`` is the type of the device that will be asked (``cpu``, ``cuda``). ``options`` are
    those of the command line, by name.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    device: str = "cpu"
    seed: int = 0
    options: Values | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Cases as entries of a plan, each with a name, and ``origin``, where they are from, in words.

    ``notes`` say what of the request has no case at all, ``notes_of_runs`` what only pytest would run. ``backend`` is
    asked where nobody names one. ``origins`` are those of single entries, by name; ``problems`` are files left out.
    """

    backend: str
    origin: str
    entries: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...] = ()
    notes_of_runs: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


SOURCES: Registry[Any] = Registry("source")
SOURCES.register("opinfo", "optest.torch.opinfo.source:collect")
SOURCES.register("onnx-node", "optest.onnx.node_tests:collect")
SOURCES.register("scene", "optest.scenes.cases:collect")


def collected(
    texts: Sequence[str],
    *,
    dtypes: tuple[str, ...] = (),
    device: str = "cpu",
    seed: int = 0,
    options: Values | None = None,
) -> list[Collected]:
    """What the sources in ``texts`` have, ``opinfo:add,softmax`` or ``opinfo:all``; one of each kind.

    Raises:
        UsageError: for a text of another form.
        UnknownName: for a source that does not exist, or names that it does not have.
        Unavailable: if a source needs a package that is not installed.
    """
    names: dict[str, list[str]] = {}
    for text in texts:
        source, colon, rest = text.partition(":")
        stated = list(names_in(rest))
        if source not in SOURCES:
            raise UnknownName("source", source, SOURCES.names())
        if not colon or not stated:
            raise UsageError(f"--source is {text!r}, but should look like --source opinfo:add,softmax or opinfo:all")
        names.setdefault(source, []).extend(stated)
    return [
        SOURCES.get(source)(
            SourceRequest(names=tuple(dict.fromkeys(stated)), dtypes=dtypes, device=device, seed=seed, options=options)
        )
        for source, stated in names.items()
    ]


def names_in(text: str) -> Iterator[str]:
    """What stands between commas; one that belongs to the name of a file or folder is none."""
    parts = text.split(",")
    while parts:
        lengths = (length for length in range(len(parts), 1, -1) if os.path.exists(",".join(parts[:length]).strip()))
        length = next(lengths, 1)
        if name := ",".join(parts[:length]).strip():
            yield name
        del parts[:length]
