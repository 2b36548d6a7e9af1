"""Values inside a model, dumped in the order of execution; and two such dumps compared, key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optest.errors import UsageError
from optest.generators.files import read_tensors, save_tensors
from optest.guests import CommandContext
from optest.numerics import Array, dtype_of, ulp, widen
from optest.reporting.typography import columns, plural
from optest.spec import format_shape

if TYPE_CHECKING:
    from optest.models.hooks import Program

__all__ = ["Values", "diff_command", "dump_values", "save_values", "spec_text"]

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one execution, and what is known of each, both in the order of execution."""

    tensors: Mapping[str, Array]
    index: list[dict[str, Any]]


def dump_values(program: Program, subject: Any, path: Path) -> str:
    """Write what a program computes from the ``feeds`` of a subject, in order, and return a line about it.

    Raises:
        Fault: UNSUPPORTED if the backend shows no values.
        UsageError: if the file cannot be written.
    """
    values = save_values(program, subject.feeds, path)
    return f"{plural(len(values.index), 'value')} of one run in {path}"


def save_values(program: Program, feeds: Mapping[str, Array], path: Path) -> Values:
    """Run a program, and write its values as safetensors; the order and their places are in the metadata."""
    tensors, index = dict[str, Array](), list[dict[str, Any]]()
    for name, value, operator, place in program.values(feeds):
        tensors[name] = value
        index.append({"name": name, **spec_text(value), "operator": operator, "place": place})
    save_tensors(tensors, path, str(program), values=json.dumps(index))
    return Values(tensors, index)


def spec_text(value: Array) -> dict[str, Any]:
    """Dtype and shape of an array, by names for JSON."""
    return {"dtype": dtype_of(value.dtype).name, "shape": list(value.shape)}


def diff_command(context: CommandContext, **given: Any) -> int:
    """Compare two dumps.

    Returns:
        0 if both hold the same names, one at least, with the same dtypes, shapes and, within tolerance, elements; or 1.
    """
    if len(given["dumps"]) != 2:
        raise UsageError(f"there are {len(given['dumps'])} dumps, but two should be compared")
    one, other = (_read(Path(path)) for path in given["dumps"])
    lines = list(_lines(one, other, given["rtol"], given["atol"]))
    for line in lines[:-1] if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"and {len(lines) - 1 - _SHOWN} more lines"]:
        context.echo(line)
    context.echo(lines[-1])
    return int(len(lines) > 1)


def _read(path: Path) -> Values:
    tensors, metadata = read_tensors(path)
    known = {each["name"]: each for each in json.loads(metadata.get("values", "[]"))}
    order = [*known, *(name for name in tensors if name not in known)]
    index = [known.get(name, {"name": name, "operator": "", "place": ""}) for name in order if name in tensors]
    return Values(tensors, index)


def _lines(one: Values, other: Values, rtol: float, atol: float) -> Iterator[str]:
    """What differs, in the order of execution of the first dump, then what was compared in all."""
    names = [each["name"] for each in one.index]
    shared = [each for each in one.index if each["name"] in other.tensors]
    yield from (f"missing in the second: {name}" for name in names if name not in other.tensors)
    yield from (f"missing in the first: {name}" for name in other.tensors if name not in one.tensors)
    rows, kinds = [], []
    for each in shared:
        a, b = one.tensors[each["name"]], other.tensors[each["name"]]
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            kinds.append(f"{each['name']} is {_spec(a)} in the first, but {_spec(b)} in the second")
            rows.append(each)
        elif row := _row(a, b, rtol, atol):
            kinds.append("")
            rows.append({**each, "cells": row})
    yield from (line for line in kinds if line)
    measured = [each for each in rows if "cells" in each]
    if measured:
        head = ("value", "differ", "max abs", "max ulp", "from")
        table = [(each["name"], *each["cells"], _place(each)) for each in measured]
        yield from columns([head, *table], left=frozenset({0, 4}))
    if not shared:
        yield "no value is in both: nothing was compared"
    within = f"within rtol {rtol:g} and atol {atol:g}" if rtol or atol else "equal"
    first = f"; first: {rows[0]['name']}" + (f" ({_place(rows[0])})" if _place(rows[0]) else "") if rows else ""
    yield f"{plural(len(shared), 'value')} compared, {len(shared) - len(rows)} {within}, {len(rows)} not{first}"


def _row(a: Array, b: Array, rtol: float, atol: float) -> tuple[str, str, str] | None:
    """How many elements differ, and how far; None where none does. NaN is NaN, and the tolerance is symmetric."""
    kind = dtype_of(a.dtype)
    left, right = widen(a), widen(b)
    with np.errstate(all="ignore"):
        same = (left == right) | ((left != left) & (right != right))
        if same.all():
            return None
        one, two = (each.astype(np.complex128 if each.dtype.kind == "c" else np.float64) for each in (left, right))
        apart = np.where(same, 0.0, np.abs(one - two))
        apart = np.where(np.isnan(apart), np.inf, apart)
        differs = ~same & ~(apart <= atol + rtol * np.maximum(np.abs(one), np.abs(two)))
        differs |= ~same & ~(np.isfinite(one) & np.isfinite(two))
        if not differs.any():
            return None
        units = np.where(apart > 0, apart / ulp(two, kind), 0.0) if kind.is_float else None
    ulps = "" if units is None else f"{float(np.where(np.isnan(units), np.inf, units).max()):.3g}"
    return f"{int(differs.sum())} of {differs.size}", f"{float(apart.max()):.3g}", ulps


def _spec(value: Array) -> str:
    return f"{dtype_of(value.dtype)}[{format_shape(value.shape)}]"


def _place(each: Mapping[str, Any]) -> str:
    return ", ".join(part for part in (each["operator"], each["place"]) if part)
