"""Dumps of a program and its executions, tables of the backend's profiler, and the comparison of two dumps."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from optest.backends.whole_models import ModelProgram
from optest.compare.elements import Ends
from optest.compare.kernels import compare
from optest.compare.policy import Allowance, Method
from optest.core.border import Border
from optest.errors import UsageError, plural, shortened
from optest.generators.files import save_tensors, tensors_in_file
from optest.guests import CommandContext
from optest.numerics import Array, dtype_of, same_bits
from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns
from optest.spec import Fault, Reason, RuleUsed, format_shape
from optest.store import write_atomically

_SHOWN = 20
_BORDER = Border("the backend", Reason.RAISED)


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one execution by name, and their metadata, both in order of execution."""

    tensors: Mapping[str, Array]
    index: list[dict[str, Any]]


def save_values(program: ModelProgram, feeds: Mapping[str, Array], path: Path) -> Values:
    """Run a program, write its values to a safetensors file and return them; order and origin are in its metadata.

    Raises:
        Fault: UNSUPPORTED if the backend gives no access to its values.
        UsageError: if the file cannot be written.
    """
    tensors, index = dict[str, Array](), list[dict[str, Any]]()
    for name, value, operator, place in program.values(feeds):
        tensors[name] = value
        spec = {"dtype": dtype_of(value.dtype).name, "shape": list(value.shape)}
        index.append({"name": name, **spec, "operator": operator, "place": place})
    save_tensors(tensors, path, str(program), values=json.dumps(index))
    return Values(tensors, index)


class Hooks:
    """Dumps and profile of one program by ``dump_dir``, ``dump_mode`` and ``profile``; ``part`` is a subfolder.

    The folder gets the program's files, ``profile.json`` for chrome://tracing and Perfetto, and in mode ``all`` a
    folder for each execution: ``inputs``, ``outputs`` and ``values.safetensors``; ``index.json`` has the order.

    Raises:
        UsageError: for a folder that exists and is not empty.
    """

    def __init__(self, given: Mapping[str, Any], part: str = "") -> None:
        self._folder = folder = Path(given["dump_dir"]) / part if given["dump_dir"] else None
        if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"--dump-dir is {folder}, which is in use; name a new or an empty folder")
        self._mode, self._profiles, self._executions = given["dump_mode"], given["profile"], 0
        words = "-".join(["profile", *part.split("/")]) if part and folder is None else "profile"
        self._trace = (folder or Path()) / f"{words}.json"

    def all_lines(self, program: ModelProgram, feeds: Mapping[str, Array]) -> Iterator[str]:
        """Run a program only for its dump and profile; yield the lines of :meth:`closing_lines`."""
        if self._folder is not None:
            self.executed(program, feeds)
        yield from self.closing_lines(program, feeds)

    def executed(self, program: ModelProgram, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run a program, dump the execution if requested, and return the outputs; a Fault leaves a partial dump."""
        if self._folder is None:
            return _run_program(program, feeds)
        if self._executions == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name, content in program.files(feeds).items():
                write_atomically(self._folder / name, content)
        target = self._folder / f"{self._executions:05}"
        self._executions += 1
        if self._mode != "all":
            return _run_program(program, feeds)
        target.mkdir()
        save_tensors(feeds, target / "inputs.safetensors", str(program))
        outputs = _run_program(program, feeds)
        save_tensors(outputs, target / "outputs.safetensors", str(program))
        index: dict[str, Any] = {"program": str(program)}
        try:
            with _BORDER:
                values = save_values(program, feeds, target / "values.safetensors")
        except Fault as fault:
            index["no_values"] = fault.message
        else:
            index["values"] = [{**each, "file": "values.safetensors"} for each in values.index]
            seen = outputs.keys() & values.tensors.keys()
            same = same_bits(*([tensors[name] for name in seen] for tensors in (outputs, values.tensors)))
            index["outputs_unchanged_by_watching"] = same if seen else None
        write_atomically(target / "index.json", json.dumps(index, indent=1).encode())
        return outputs

    def closing_lines(self, program: ModelProgram, feeds: Mapping[str, Array]) -> Iterator[str]:
        """Yield the profiler's table of one more run and the path of the dump, each if requested.

        Raises:
            Fault: UNSUPPORTED if the backend has no profiler.
        """
        if self._profiles:
            self._trace.unlink(missing_ok=True)
            with _BORDER:
                rows = sorted(program.profile(feeds, self._trace), key=lambda row: -row[2])
            total_s = sum(seconds for _, _, seconds in rows) or 1.0
            shown = [
                (name, str(calls), seconds_text(s), f"{100 * s / total_s:.1f}") for name, calls, s in rows[:_SHOWN]
            ]
            yield "profile of one run, by the backend's profiler"
            yield from columns([("operator", "calls", "time", "%"), *shown], left=frozenset({0}))
            if len(rows) > _SHOWN:
                yield f"  and {len(rows) - _SHOWN} more operators"
            if self._trace.exists():
                yield f"  for chrome://tracing or Perfetto: {self._trace}"
            else:
                yield "  no trace for viewers: the backend reports durations without start times"
        if self._folder is not None:
            kept = f" and {plural(self._executions, 'execution')}" if self._mode == "all" else ""
            yield f"dumped: the program{kept} in {self._folder}"


def _run_program(program: ModelProgram, feeds: Mapping[str, Array]) -> dict[str, Array]:
    with _BORDER:
        return program.outputs(feeds)


def diff_command(context: CommandContext, **options: Any) -> int:
    """Compare two dumps and print the differences.

    Returns:
        0 if the dumps hold the same values (at least one) with equal dtypes and shapes and elements within tolerance,
        else 1. With ``common``, values that only one dump holds are ignored.
    """
    if len(options["dumps"]) != 2:
        raise UsageError(f"{len(options['dumps'])} dumps are named, expected 2")
    for name in ("rtol", "atol"):
        if not 0 <= options[name] < inf:
            raise UsageError(f"--{name} is {options[name]:g}, expected a finite number of 0 or more")
    one, other = (_read_dump(Path(path)) for path in options["dumps"])
    pairs = [(each, each["name"]) for each in one.index if each["name"] in other.tensors]
    lines, unmatched = list[str](), ("missing in the second", "missing in the first")
    if _are_different_exports(one, other):
        context.echo("the dumps come from different exports: values are matched by module, statement and order")
        pairs, unmatched = _same_producers(one, other), ("not compared, of the first", "not compared, of the second")
    paired = {each["name"] for each, _ in pairs}, {name for _, name in pairs}
    for text, values, names in zip(unmatched, (one, other), paired, strict=True):
        if left := [each["name"] for each in values.index if each["name"] not in names]:
            (context.echo if options["common"] else lines.append)(f"{text}, {len(left)}: {shortened(left, _SHOWN)}")
    if not pairs:
        lines.append("the dumps have no common value: nothing was compared")
    wrong = []
    for each, name in pairs:
        if cells := _difference_cells(one.tensors[each["name"]], other.tensors[name], options["rtol"], options["atol"]):
            place = ", ".join(part for part in (each["operator"], each["place"]) if part)
            wrong.append((each["name"] if each["name"] == name else f"{each['name']} ({name})", *cells, place))
    if wrong:
        head = ("value", "differ", "max abs", "max ulp", "from")
        lines += columns([head, *wrong[:_SHOWN]], left=frozenset({0, 1, 4}))
    if len(wrong) > _SHOWN:
        lines.append(f"  and {len(wrong) - _SHOWN} more values")
    for line in lines:
        context.echo(line)
    within = (
        f"within rtol {options['rtol']:g} and atol {options['atol']:g}"
        if options["rtol"] or options["atol"]
        else "equal"
    )
    first = f"; first: {wrong[0][0]}" + (f" ({wrong[0][-1]})" if wrong[0][-1] else "") if wrong else ""
    counts = f"{len(pairs) - len(wrong)} {within}, {len(wrong)} not"
    context.echo(f"{plural(len(pairs), 'value')} compared, {counts}{first}")
    return int(bool(lines))


_LINE = re.compile(r"(^|, )[^,:]+:\d+(?=: |$)")


def _are_different_exports(one: Values, other: Values) -> bool:
    """Return whether equal names can mean different values, since each exporter numbers values on its own."""
    # Origins are compared without file and line, since one dump may be of an edited copy of the model.
    places = {each["name"]: each["place"] for each in other.index}
    shared = [(each["place"], places[each["name"]]) for each in one.index if each["place"] and places.get(each["name"])]
    of_torch = [any(each["operator"].startswith("aten.") for each in values.index) for values in (one, other)]
    return any(_LINE.sub("", a) != _LINE.sub("", b) for a, b in shared) or (bool(shared) and of_torch[0] != of_torch[1])


def _same_producers(one: Values, other: Values) -> list[tuple[dict[str, Any], str]]:
    """Pair the values of equal module and statement; skip those whose number or shapes differ between the dumps."""

    def groups(values: Values) -> dict[tuple[str, str], list[str]]:
        numbered = defaultdict[tuple[str, str], list[tuple[int, str]]](list)
        for each in values.index:
            kind, _, number = each["name"].rpartition("_")
            kind, number = (kind, number) if number.isdecimal() else (each["name"], "0")
            numbered[_LINE.sub("", each["place"]), kind].append((int(number), each["name"]))
        # The number is the order in the program; an optimiser may run the nodes in another order.
        return {key: [name for _, name in sorted(values_at)] for key, values_at in numbered.items()}

    theirs, paired = groups(other), dict[str, str]()
    for key, ours in groups(one).items():
        match = theirs.get(key, [])
        if [one.tensors[name].shape for name in ours] == [other.tensors[name].shape for name in match]:
            paired.update(zip(ours, match, strict=True))
    return [(each, paired[each["name"]]) for each in one.index if each["name"] in paired]


def _read_dump(path: Path) -> Values:
    """Return the values of a dump in order of execution; those without metadata are last."""
    tensors, metadata = tensors_in_file(path)
    known = {each["name"]: each for each in json.loads(metadata.get("values", "[]"))}
    order = [*known, *(name for name in tensors if name not in known)]
    index = [known.get(name, {"name": name, "operator": "", "place": ""}) for name in order if name in tensors]
    return Values(tensors, index)


def _difference_cells(a: Array, b: Array, rtol: float, atol: float) -> tuple[str, str, str] | None:
    """Return texts of differing elements (or specs), largest error and ulp; None if all agree. NaN equals NaN."""
    kind, spec = dtype_of(b.dtype), _spec_text(b)
    if _spec_text(a) != spec:
        return f"{_spec_text(a)} and {spec}", "", ""
    used = RuleUsed(name="tolerance", layer="", text="")
    allowance = Allowance(used=used, method=Method.TOLERANCE, rtol=rtol, atol=atol)
    outcome = compare(a, b, kind, allowance, ends=Ends(), detailed=True)
    if not outcome.mismatched:
        return None
    error, in_ulp = (
        inf if outcome.nonfinite_mismatched else measure.value for measure in (outcome.error, outcome.in_ulp)
    )
    return f"{outcome.mismatched} of {a.size}", f"{error:.3g}", f"{in_ulp:.3g}" if kind.is_float else ""


def _spec_text(value: Array) -> str:
    return f"{dtype_of(value.dtype)}[{format_shape(value.shape)}]"
