"""Writing of a file of model cases, one argument a line, so that a diff of two files is readable."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from optest.plan.repro import flow
from optest.plan.yaml_source import load_value


def text_of_model_file(
    model: str, cases: Iterable[Mapping[str, Any]], *, defaults: Mapping[str, Any], comment: Iterable[str] = ()
) -> str:
    """Return the YAML of a file of model cases with these entries of ``cases``."""
    head = [*(f"# {line}" for line in comment), f"model: {_flow(model)}", f"defaults: {_flow(defaults)}", "cases:"]
    return "\n".join([*head, *(line for case in cases for line in _case_lines(case))]) + "\n"


def _case_lines(case: Mapping[str, Any]) -> Iterator[str]:
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
    """Return a value as YAML on one line, with quotes only if a word would not be read as text."""
    match value:
        case str() if _is_plain_word(value):
            return value
        case Mapping():
            return "{" + ", ".join(f"{_flow(key)}:{_text_after_key(key, entry)}" for key, entry in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_flow, value)) + "]"
    return flow(value)


# Characters of data on a line; longer data are written on several lines.
_WIDEST = 100

_MARGIN = "\n          "


def _text_after_key(key: str, value: Any) -> str:
    text = _flow(value)
    if key != "init_args" or not isinstance(value, list) or len(text) <= _WIDEST:
        return f" {text}"
    return _MARGIN + _MARGIN.join(_nested_rows(value, ""))


def _nested_rows(values: list[Any], opening: str) -> Iterator[str]:
    """Yield the lines of nested lists, at least one a row; ``opening`` are the brackets before the first row."""
    if not (values and isinstance(values[0], list)):
        yield from _wrap_row(f"[{', '.join(map(_flow, values))}]", opening)
        return
    for index, each in enumerate(values):
        lines = list(_nested_rows(each, f"{opening}[" if not index else " " * (len(opening) + 1)))
        yield from lines[:-1]
        yield lines[-1] + ("]" if index == len(values) - 1 else ",")


def _wrap_row(row: str, opening: str) -> list[str]:
    following = " " * (len(opening) + 1)
    return textwrap.wrap(row, _WIDEST, initial_indent=opening, subsequent_indent=following, break_long_words=False,
                         break_on_hyphens=False, drop_whitespace=True)  # fmt: skip


@lru_cache(maxsize=1024)
def _is_plain_word(word: str) -> bool:
    try:
        return _WORD.fullmatch(word) is not None and load_value(word) == word
    except ValueError:  # yes, no, on, off
        return False
