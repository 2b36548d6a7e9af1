"""Values inside a model, dumped in the order of execution; and two such dumps compared, key by key."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from optest.backends.whole_models import ModelProgram
from optest.compare.elements import Ends
from optest.compare.kernels import compare
from optest.compare.policy import Allowance, Method
from optest.errors import UsageError, plural, shortened
from optest.generators.files import save_tensors, tensors_in_file
from optest.guests import CommandContext
from optest.numerics import Array, dtype_of
from optest.reporting.typography import columns
from optest.spec import RuleUsed, format_shape

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one execution, and what is known of each, both in the order of execution."""

    tensors: Mapping[str, Array]
    index: list[dict[str, Any]]


def save_values(program: ModelProgram, feeds: Mapping[str, Array], path: Path) -> Values:
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
        0 if both hold the same values, one at least, with the same dtype, shape and, within tolerance, elements; or 1.
        With ``common`` only the values that both hold have to be the same.
    """
    if len(given["dumps"]) != 2:
        raise UsageError(f"there are {len(given['dumps'])} dumps, but two should be compared")
    for name in ("rtol", "atol"):
        if not 0 <= given[name] < inf:
            raise UsageError(f"--{name} is {given[name]:g}, expected a number from 0 on")
    one, other = (_read(Path(path)) for path in given["dumps"])
    pairs = [(each, each["name"]) for each in one.index if each["name"] in other.tensors]
    lines, unmatched = list[str](), ("missing in the second", "missing in the first")
    if _are_different_exports(one, other):
        context.echo("the dumps are of different exports: values are matched by module, statement and order")
        pairs, unmatched = _same_producers(one, other), ("not compared, of the first", "not compared, of the second")
    paired = {each["name"] for each, _ in pairs}, {name for _, name in pairs}
    for text, values, names in zip(unmatched, (one, other), paired, strict=True):
        if left := [each["name"] for each in values.index if each["name"] not in names]:
            (context.echo if given["common"] else lines.append)(f"{text}, {len(left)}: {shortened(left, _SHOWN)}")
    if not pairs:
        lines.append("no value is in both: nothing was compared")
    wrong = []
    for each, name in pairs:
        if cells := _difference(one.tensors[each["name"]], other.tensors[name], given["rtol"], given["atol"]):
            place = ", ".join(part for part in (each["operator"], each["place"]) if part)
            wrong.append((each["name"] if each["name"] == name else f"{each['name']} ({name})", *cells, place))
    if wrong:
        head = ("value", "differ", "max abs", "max ulp", "from")
        lines += columns([head, *wrong[:_SHOWN]], left=frozenset({0, 1, 4}))
    if len(wrong) > _SHOWN:
        lines.append(f"  and {len(wrong) - _SHOWN} more values")
    for line in lines:
        context.echo(line)
    within = f"within rtol {given['rtol']:g} and atol {given['atol']:g}" if given["rtol"] or given["atol"] else "equal"
    first = f"; first: {wrong[0][0]}" + (f" ({wrong[0][-1]})" if wrong[0][-1] else "") if wrong else ""
    counts = f"{len(pairs) - len(wrong)} {within}, {len(wrong)} not"
    context.echo(f"{plural(len(pairs), 'value')} compared, {counts}{first}")
    return int(bool(lines))


_LINE = re.compile(r"(^|, )[^,:]+:\d+(?=: |$)")


def _are_different_exports(one: Values, other: Values) -> bool:
    """Return whether a name in both dumps can mean two values, since each exporter numbers its own steps."""
    # Without file and line, since one dump may be of an edited copy of the model.
    places = {each["name"]: each["place"] for each in other.index}
    shared = [(each["place"], places[each["name"]]) for each in one.index if each["place"] and places.get(each["name"])]
    of_torch = [any(each["operator"].startswith("aten.") for each in values.index) for values in (one, other)]
    return any(_LINE.sub("", a) != _LINE.sub("", b) for a, b in shared) or (bool(shared) and of_torch[0] != of_torch[1])


def _same_producers(one: Values, other: Values) -> list[tuple[dict[str, Any], str]]:
    """Pair the values of the same statement and module; not those of which one dump has more, or other shapes."""

    def groups(values: Values) -> dict[tuple[str, str], list[str]]:
        numbered = defaultdict[tuple[str, str], list[tuple[int, str]]](list)
        for each in values.index:
            kind, _, number = each["name"].rpartition("_")
            kind, number = (kind, number) if number.isdecimal() else (each["name"], "0")
            numbered[_LINE.sub("", each["place"]), kind].append((int(number), each["name"]))
        # The number is the order in the program; an optimiser may run the nodes in another order.
        return {key: [name for _, name in sorted(found)] for key, found in numbered.items()}

    theirs, paired = groups(other), dict[str, str]()
    for key, ours in groups(one).items():
        match = theirs.get(key, [])
        if [one.tensors[name].shape for name in ours] == [other.tensors[name].shape for name in match]:
            paired.update(zip(ours, match, strict=True))
    return [(each, paired[each["name"]]) for each in one.index if each["name"] in paired]


def _read(path: Path) -> Values:
    tensors, metadata = tensors_in_file(path)
    known = {each["name"]: each for each in json.loads(metadata.get("values", "[]"))}
    order = [*known, *(name for name in tensors if name not in known)]
    index = [known.get(name, {"name": name, "operator": "", "place": ""}) for name in order if name in tensors]
    return Values(tensors, index)


def _difference(a: Array, b: Array, rtol: float, atol: float) -> tuple[str, str, str] | None:
    """How many elements differ, and how far; None where none does. NaN is NaN."""
    kind, spec = dtype_of(b.dtype), _spec(b)
    if _spec(a) != spec:
        return f"{_spec(a)} and {spec}", "", ""
    stated = RuleUsed(name="tolerance", layer="", text="")
    allowance = Allowance(used=stated, method=Method.TOLERANCE, rtol=rtol, atol=atol)
    outcome = compare(a, b, kind, allowance, ends=Ends(), detailed=True)
    if not outcome.mismatched:
        return None
    error, in_ulp = (inf if outcome.nonfinite_mismatched else each.value for each in (outcome.error, outcome.in_ulp))
    return f"{outcome.mismatched} of {a.size}", f"{error:.3g}", f"{in_ulp:.3g}" if kind.is_float else ""


def _spec(value: Array) -> str:
    return f"{dtype_of(value.dtype)}[{format_shape(value.shape)}]"
