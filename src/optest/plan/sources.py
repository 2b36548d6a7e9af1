"""Sources of cases other than plans: `--source NAME:…` yields entries in the form of a plan's cases.

A source is a function ``(SourceRequest) -> Collected``, registered by the word before the colon, imported on use.
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
    """Selection of cases from a source.

    ``names`` are the words after the colon. ``dtypes`` limits the cases to these dtypes; () is all. ``device`` is the
    type of the device under test (``cpu``, ``cuda``), ``options`` are those of the command line, by name.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    device: str = "cpu"
    seed: int = 0
    options: Values | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Cases of a source as named entries of a plan; ``origin`` names the source in messages.

    ``notes`` list requested names without cases, ``notes_of_runs`` what only pytest would run. ``backend`` is the
    default for these cases. ``origins`` are those of single entries, by name; ``problems`` are about omitted files.
    """

    backend: str
    origin: str
    entries: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...] = ()
    notes_of_runs: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


SOURCES: Registry[Any] = Registry("source")
# By import string: a source may need a package that is not installed.
SOURCES.register("opinfo", "optest.torch.opinfo.source:collect")
SOURCES.register("onnx-node", "optest.onnx.node_tests:collect")
SOURCES.register("scene", "optest.scenes.cases:collect")


def collect_sources(
    texts: Sequence[str],
    *,
    dtypes: tuple[str, ...] = (),
    device: str = "cpu",
    seed: int = 0,
    options: Values | None = None,
) -> list[Collected]:
    """Return the cases of each source in ``texts``, such as ``opinfo:add,softmax`` or ``opinfo:all``, one result each.

    Raises:
        UsageError: for a text of another form.
        UnknownName: for an unknown source, or names that it does not have.
        Unavailable: if a source needs a package that is not installed.
    """
    names: dict[str, list[str]] = {}
    for text in texts:
        source, colon, rest = text.partition(":")
        words = list(split_names(rest))
        if source not in SOURCES:
            raise UnknownName("source", source, SOURCES.names())
        if not colon or not words:
            raise UsageError(f"--source is {text!r}, expected a form like --source opinfo:add,softmax or opinfo:all")
        names.setdefault(source, []).extend(words)
    return [
        SOURCES.get(source)(
            SourceRequest(names=tuple(dict.fromkeys(words)), dtypes=dtypes, device=device, seed=seed, options=options)
        )
        for source, words in names.items()
    ]


def split_names(text: str) -> Iterator[str]:
    """Yield the comma-separated names in a text; a comma in the name of an existing file or folder does not count."""
    parts = text.split(",")
    while parts:
        # The longest existing path wins.
        lengths = (length for length in range(len(parts), 1, -1) if os.path.exists(",".join(parts[:length]).strip()))
        length = next(lengths, 1)
        if name := ",".join(parts[:length]).strip():
            yield name
        del parts[:length]
