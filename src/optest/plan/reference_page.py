"""The page docs/plan-reference.md: every key of a plan, from the schema that reads it.

``python -m optest.plan.reference_page`` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from optest.plan.schema import plan_schema

__all__ = ["plan_page"]

Node = Mapping[str, Any]

_HEAD = """\
# Plan reference

<!-- Made by `optest.plan.reference_page` from the schema of plans; edit the descriptions there, not this file. -->

Every key that a plan may have, from the schema that reads it: `optest schema plan` prints the same for editors.
[The plan file](plan.md) explains them with examples.
"""
_TITLES = {"CaseEntry": "A case", "Defaults": "`defaults`", "ReportOptions": "`report`"}
_MANY = 6
"""Examples or choices beyond which a list is cut short."""


def plan_page() -> str:
    """The whole page, with a newline at its end."""
    schema = plan_schema()
    parts = [_HEAD, "## The file\n", _table(_rows(schema))]
    shown: dict[str, str] = {}
    for name, node in schema["$defs"].items():
        rows = _rows(node)
        new = {key: row for key, row in rows.items() if shown.get(key) != row}
        body = _table(rows) if new else f"Keys as in the tables above: {', '.join(f'`{key}`' for key in rows)}.\n"
        parts += [f"## {_TITLES.get(name, name)}\n", f"{node.get('description', '')}\n", body]
        shown |= rows
    return "\n".join(parts)


def _table(rows: dict[str, str]) -> str:
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows.values()]) + "\n"


def _rows(node: Node) -> dict[str, str]:
    """The row of each key."""
    required = node.get("required", ())
    rows = {}
    for key, value in node["properties"].items():
        cells = (f"`{key}`", _cell(_type(value)), _default(value, key in required), _cell(value.get("description", "")))
        rows[key] = f"| {' | '.join(cells)} |"
    return rows


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _default(value: Node, is_required: bool) -> str:
    if is_required:
        return "required"
    found = value.get("default")
    return "" if found in (None, "", [], {}) else f"`{json.dumps(found)}`"


def _type(value: Node) -> str:
    """The form of a value in words: ``number ≥ 0``, ``text or list of text``."""
    if "$ref" in value:
        return _link(value["$ref"].rpartition("/")[2])
    for several in ("anyOf", "oneOf"):
        if several in value:
            return " or ".join(dict.fromkeys(_type(each) for each in value[several]))
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return "one of " + _some(value["enum"])
    match value.get("type"):
        case "array":
            return f"list of {_type(value['items'])}" if value.get("items") else "list"
        case "object":
            return _mapping(value)
        case "string":
            return "text" + (f", such as {_some(value['examples'])}" if value.get("examples") else "")
        case "number" | "integer" as kind:
            return " ".join([kind, *_limits(value)])
        case "boolean":
            return "true or false"
        case "null":
            return "null"
    return "anything"


def _link(definition: str) -> str:
    title = _TITLES.get(definition, definition).replace("`", "")
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def _mapping(value: Node) -> str:
    if value.get("properties"):
        keys = ", ".join(f"`{key}`" for key in value["properties"])
        return f"mapping with {keys}"
    inner = value.get("additionalProperties")
    return f"mapping from names to {_type(inner)}" if isinstance(inner, dict) and len(inner) > 1 else "mapping"


def _limits(value: Node) -> Iterator[str]:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    for key, sign in signs.items():
        if key in value:
            number = value[key]
            power = number.bit_length() - 1 if isinstance(number, int) and number > 2**31 else 0
            yield f"{sign} {f'2^{power}' if power and number == 2**power else number}"


def _some(values: list[Any]) -> str:
    shown = ", ".join(f"`{value}`" for value in values[:_MANY])
    return f"{shown} …" if len(values) > _MANY else shown


if __name__ == "__main__":
    sys.stdout.write(plan_page())
