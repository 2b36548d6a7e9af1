"""Values inside a model, dumped in the order of execution; and two such dumps compared, key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optest.errors import UsageError
from optest.generators.files import save_tensors, tensors_in_file
from optest.guests import CommandContext
from optest.numerics import Array, dtype_of, ulp, widen
from optest.reporting.typography import columns, plural
from optest.spec import format_shape

if TYPE_CHECKING:
    from optest.models.hooks import Program

__all__ = ["Values", "diff_command", "save_values"]

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one execution, and what is known of each, both in the order of execution."""

    tensors: Mapping[str, Array]
    index: list[dict[str, Any]]


def save_values(program: Program, feeds: Mapping[str, Array], path: Path) -> Values:
    """Run a program, and write its values as safetensors; the order and their places are in the metadata.

    Raises:
        Fault: UNSUPPORTED if the backend shows no values.
        UsageError: if the file cannot be written.
    """
    tensors, index = dict[str, Array](), list[dict[str, Any]]()
    for name, value, operator, place in program.values(feeds):
        tensors[name] = value
        spec = {"dtype": dtype_of(value.dtype).name, "shape": list(value.shape)}
        index.append({"name": name, **spec, "operator": operator, "place": place})
    save_tensors(tensors, path, str(program), values=json.dumps(index))
    return Values(tensors, index)


def diff_command(context: CommandContext, **given: Any) -> int:
    """Compare two dumps.

    Returns:
        0 if both hold the same names, one at least, with the same dtypes, shapes and, within tolerance, elements; or 1.
        With ``common`` only the names that both hold have to be the same.
    """
    if len(given["dumps"]) != 2:
        raise UsageError(f"there are {len(given['dumps'])} dumps, but two should be compared")
    one, other = (_read(Path(path)) for path in given["dumps"])
    shared = [each for each in one.index if each["name"] in other.tensors]
    lines = [] if given["common"] else [*_missing("second", one, other), *_missing("first", other, one)]
    if not shared:
        lines.append("no name is in both: nothing was compared")
    wrong = []
    for each in shared:
        pair = one.tensors[each["name"]], other.tensors[each["name"]]
        if cells := _difference(*pair, given["rtol"], given["atol"]):
            wrong.append((each["name"], *cells, _place(each)))
    for line in (*lines, *_table(wrong)):
        context.echo(line)
    within = f"within rtol {given['rtol']:g} and atol {given['atol']:g}" if given["rtol"] or given["atol"] else "equal"
    first = f"; first: {wrong[0][0]}" + (f" ({wrong[0][-1]})" if wrong[0][-1] else "") if wrong else ""
    context.echo(
        f"{plural(len(shared), 'value')} compared, {len(shared) - len(wrong)} {within}, {len(wrong)} not{first}"
    )
    return int(bool(lines or wrong))


def _missing(which: str, here: Values, there: Values) -> Iterator[str]:
    names = [each["name"] for each in here.index if each["name"] not in there.tensors]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"missing in the {which}, {len(names)}: {', '.join(names[:_SHOWN])}{more}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        head = ("value", "differ", "max abs", "max ulp", "from")
        yield from columns([head, *rows[:_SHOWN]], left=frozenset({0, 1, 4}))
    if len(rows) > _SHOWN:
        yield f"  and {len(rows) - _SHOWN} more values"


def _read(path: Path) -> Values:
    tensors, metadata = tensors_in_file(path)
    known = {each["name"]: each for each in json.loads(metadata.get("values", "[]"))}
    order = [*known, *(name for name in tensors if name not in known)]
    index = [known.get(name, {"name": name, "operator": "", "place": ""}) for name in order if name in tensors]
    return Values(tensors, index)


def _difference(a: Array, b: Array, rtol: float, atol: float) -> tuple[str, str, str] | None:
    """How many elements differ, and how far; None where none does. NaN is NaN, and the tolerance is symmetric."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{_spec(a)} and {_spec(b)}", "", ""
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
