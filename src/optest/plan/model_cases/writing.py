"""A file of model cases as text: an argument on each line, so that differences of two files can be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from optest.plan.repro import flow
from optest.plan.source import load_value

__all__ = ["text_of_model_file"]


def text_of_model_file(
    model: str, cases: Iterable[Mapping[str, Any]], *, defaults: Mapping[str, Any], comment: Iterable[str] = ()
) -> str:
    """YAML of a file with these entries of ``cases``."""
    head = [*(f"# {line}" for line in comment), f"model: {_flow(model)}", f"defaults: {_flow(defaults)}", "cases:"]
    return "\n".join([*head, *(line for case in cases for line in _lines(case))]) + "\n"


def _lines(case: Mapping[str, Any]) -> Iterator[str]:
    lead = "  - "
    for key, value in case.items():
        if key == "inputs":
            yield f"{lead}inputs:"
            yield from (f"      - {_entry(each)}" for each in value)
        else:
            yield f"{lead}{key}: {_flow(value)}"
        lead = "    "


def _entry(entry: Mapping[str, Any]) -> str:
    ((kind, value),) = entry.items()
    return f"{kind}: {_flow(value)}"


_WORD = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)


def _flow(value: Any) -> str:
    """On one line, with quotes only where a word would be read as something else."""
    match value:
        case str() if _is_plain(value):
            return value
        case Mapping():
            return "{" + ", ".join(f"{_flow(key)}: {_flow(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_flow, value)) + "]"
    return flow(value)


@lru_cache(maxsize=1024)
def _is_plain(word: str) -> bool:
    try:
        return _WORD.fullmatch(word) is not None and load_value(word) == word
    except ValueError:  # yes, no, on, off
        return False
