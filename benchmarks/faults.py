"""Which wrong kernels are rejected? The faults of ``tests/plugins/wrong_kernels``, one at a time, by class of rule.

    python benchmarks/faults.py [--source check|widths|drawn] [--seeds 1] [--op NAME] [--jobs 2]

Faults are those of the registry and those that every operator can have. The sources of cases are those of
``honest.py``:

- ``check``: ``optest check`` by default settings. A fault counts once, as rejected if any case rejects it.
- ``widths`` and ``drawn``: every result that differs from the right one counts. Registry faults that only a special
  sample shows are left out.

Prints a Markdown table by source and class of rule, then the misses with their reason. Exits with 1 if ``check``
misses a fault of the registry, or if less than the share of :data:`LEAST` is rejected of a class.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import kit
import numpy as np
from drawn_calls import DRAWN, drawn_case
from width_calls import DTYPES, cases_of_width, float_operators
from wrong_kernels import FAULTS, MEMORY, ORDINARY, Call, Fault, first_findings, outputs_of
from wrong_kernels.any_operator import faults_of
from wrong_kernels.registry import Array

from optest.api import bootstrap
from optest.backends.numpy_reference import NumpyBackend
from optest.compare.verdict import compare_outputs
from optest.core.expected import expected_outputs, make_inputs
from optest.numerics import ulp, widen
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS
from optest.spec import BackendTarget, Numerics, Reason, Status, TestCase, Verdict

__all__ = ["LEAST", "SOURCES", "Sample", "Tally", "Task", "failures", "tally_of"]

SOURCES = ("check", "widths", "drawn")
# Without a width of 1, in which many faults are none: one element cannot be out of order.
WIDTHS = (17, 4096, 65_536)
DRAWS = 20
LEAST = {"movement": 0.99, "exact": 0.9, "ulp": 0.95, "accumulate": 0.9, "composed": 0.85}
"""Smallest share of wrong results that has to be rejected, by class of rule."""
_TARGET = BackendTarget(name="numpy", device="cpu")
_HONEST = NumpyBackend()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The faults of one operator, with the cases of one source and seed."""

    source: str
    op: str
    seed: int


@dataclass(slots=True, kw_only=True)
class Tally:
    """Wrong results and rejected ones of one task, by fault; with ``check`` one for each fault."""

    task: Task
    wrong: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a wrong result was accepted, for the last one of each fault."""

    @property
    def kind(self) -> str:
        rule = operators.get(self.task.op).rule
        return rule.kind.value if rule is not None else "none"

    def missed(self) -> list[str]:
        return [name for name in self.wrong if self.rejected[name] < self.wrong[name]]


class Sample:
    """A case with its inputs and right outputs, to which wrong kernels are applied."""

    def __init__(self, case: TestCase) -> None:
        self.case = case
        self.inputs, known = make_inputs(case)
        self.right = _HONEST.run(case, self.inputs)
        self.expected, _ = expected_outputs([case], self.inputs, known, _HONEST)

    def wrong(self, fault: Fault) -> Sequence[Array] | None:
        """Return the outputs of a wrong kernel, None if they are the right ones."""
        outputs = outputs_of(fault, Call(self.case, self.inputs, self.right))
        if outputs is None or all(map(_are_same, outputs, self.right)):
            return None
        return outputs

    def judge(self, outputs: Sequence[Array]) -> Verdict:
        return compare_outputs(self.case, outputs, self.expected, numerics=Numerics(), inputs=self.inputs)

    def reason(self, outputs: Sequence[Array]) -> str:
        """Return how far accepted outputs are from the right ones."""
        pairs = zip(outputs, self.right, self.case.outputs, strict=True)
        with np.errstate(all="ignore"):
            errors = [np.abs(widen(x) - widen(y)) / ulp(widen(y), spec.dtype) for x, y, spec in pairs]
        largest = max(float(np.nanmax(x, initial=0.0)) for x in errors)
        if largest == 0:
            return "the same values, zeros of another sign"
        size = "one ulp" if largest <= 1 else f"{largest:,.0f} ulp"
        return f"inside the rule, at most {size} off in {self.case.dtypes[0].name}"


def _are_same(output: Array, right: Array) -> bool:
    return output.dtype == right.dtype and output.shape == right.shape and output.tobytes() == right.tobytes()


def tally_of(task: Task) -> Tally:
    """Apply the faults of an operator to the cases of a source, in this process."""
    bootstrap()
    tally = Tally(task=task)
    generic = list(faults_of(operators.get(task.op)))
    registered = [x for x in FAULTS.values() if x.op == task.op]
    if task.source == "check":
        found = first_findings(task.op, [*registered, *generic])
        for fault in (*registered, *generic):
            tally.wrong[fault.name] = 1
            tally.rejected[fault.name] = int(fault.name in found)
        return tally
    faults = [*(x for x in registered if ORDINARY in x.tags and MEMORY not in x.tags), *generic]
    for case in _cases_of(task):
        _apply([x for x in faults if Reason.NOT_REFUSED not in x.reasons], Sample(case), tally)
    return tally


def _apply(faults: Sequence[Fault], sample: Sample, tally: Tally) -> None:
    for fault in faults:
        try:
            outputs = sample.wrong(fault)
        except Exception:
            # Without an attribute that it needs, such as a transposition, a call raises, which is no wrong result.
            if Reason.RAISED in fault.reasons:
                continue
            raise
        if outputs is None:
            continue
        tally.wrong[fault.name] += 1
        if sample.judge(outputs).status is Status.PASSED:
            tally.reasons[fault.name] = sample.reason(outputs)
        else:
            tally.rejected[fault.name] += 1


def _cases_of(task: Task) -> Iterator[TestCase]:
    if task.source == "drawn":
        yield from (drawn_case(task.op, np.random.default_rng((task.seed, k)), _TARGET) for k in range(DRAWS))
        return
    for dtype in DTYPES:
        for width in WIDTHS:
            for case in cases_of_width(operators.get(task.op), dtype, width, _TARGET):
                yield dataclasses.replace(case, seed=task.seed)


def failures(tallies: Sequence[Tally]) -> list[str]:
    """Return what is worse than it should be: registry faults that ``check`` misses, and classes below their share."""
    missed = [name for x in tallies if x.task.source == "check" for name in x.missed() if name in FAULTS]
    wrong: list[str] = [f"check misses {name}" for name in missed]
    for source, kind, counted in _by_class(tallies):
        share = sum(x.rejected.total() for x in counted) / max(1, sum(x.wrong.total() for x in counted))
        if share < LEAST.get(kind, 0.0):
            wrong.append(f"{source}: {share:.1%} of {kind} rejected, expected at least {LEAST[kind]:.0%}")
    return wrong


def _by_class(tallies: Sequence[Tally]) -> Iterator[tuple[str, str, list[Tally]]]:
    for source in SOURCES:
        for kind in (*LEAST, "none"):
            counted = [x for x in tallies if x.task.source == source and x.kind == kind]
            if counted:
                yield source, kind, counted


def report(tallies: Sequence[Tally]) -> str:
    """Return a table by source and class of rule, and one by kind of the generic faults that ``check`` misses."""
    rows = []
    for source, kind, counted in _by_class(tallies):
        wrong, rejected = sum(x.wrong.total() for x in counted), sum(x.rejected.total() for x in counted)
        names, chosen = {name for x in counted for name in x.wrong}, {x.task.op for x in counted}
        rows.append((source, kind, len(chosen), len(names), wrong, rejected, f"{rejected / max(1, wrong):.1%}"))
    by_class = kit.table(("source", "class", "operators", "faults", "wrong", "rejected", "share"), rows)
    generic: dict[str, list[int]] = {}
    for tally in tallies:
        for name in tally.wrong if tally.task.source == "check" else ():
            if name not in FAULTS:
                counts = generic.setdefault(_kind_of(name), [0, 0])
                counts[0] += tally.wrong[name]
                counts[1] += tally.rejected[name]
    of_any = kit.table(("fault of any operator, by check", "faults", "rejected"), [(k, *n) for k, n in generic.items()])
    return "\n\n".join([by_class, of_any] if generic else [by_class])


def _kind_of(generic: str) -> str:
    kind = generic.partition(": ")[2]
    return "an attribute or optional input ignored" if kind.endswith(" ignored") and "offset" not in kind else kind


def misses(tallies: Sequence[Tally]) -> str:
    """Return the faults that are not always rejected, with the last accepted result's distance from the right one."""
    lines = []
    for tally in tallies:
        for name in tally.missed():
            reason = tally.reasons.get(name, "no case of check shows it")
            lines.append(f"- {tally.task.source}, {name}: {tally.rejected[name]} of {tally.wrong[name]}; {reason}")
    return "\n".join(lines)


def main() -> int:
    parser = kit.parser(__doc__)
    parser.add_argument("--source", action="append", choices=SOURCES, help="source of cases. Repeatable. [all]")
    parser.add_argument("--seeds", type=int, default=1, help="of widths and drawn cases")
    parser.add_argument("--op", action="append", help="only this operator. Repeatable.")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    bootstrap()
    chosen = [operators.get(name).name for name in options.op or []]
    of_source = {
        "check": [x.name for x in DESCRIPTORS if x.samples is not None],
        "widths": [x.name for x in float_operators()],
        "drawn": list(DRAWN),
    }
    tasks = [
        Task(source=source, op=op, seed=seed)
        for source in options.source or SOURCES
        for op in of_source[source]
        for seed in range(1 if source == "check" else options.seeds)
        if not chosen or op in chosen
    ]
    began = time.perf_counter()
    tallies = list(kit.parallel(tally_of, tasks, options.jobs))
    wrong, rejected = sum(x.wrong.total() for x in tallies), sum(x.rejected.total() for x in tallies)
    print(f"{rejected:,} of {wrong:,} rejected in {time.perf_counter() - began:.0f} s.\n")
    print(report(tallies), misses(tallies), sep="\n\n")
    failed = failures(tallies)
    print("", *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
