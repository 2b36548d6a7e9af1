"""Kernels that round to one side inside their rule: which does `optest check` name, and does it name honest ones?

    python benchmarks/one_sided.py [--seeds 2] [--backend NAME] [--op NAME] [--jobs 2]

Honest backends (those of ``honest.py``), and answers of the references that are rounded in ways of their own, are asked
what `optest check` asks of every operator that is judged by bounds. Prints a Markdown table and the lines that a check
would print for the honest backends; exits with 1 if correct rounding or noise without a side is named, or if less
than nine in ten one-sided roundings of float32 are either named or rejected.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import single_backend

from optest.api import bootstrap
from optest.api.checking import check_request
from optest.backends import BackendDriver, backend_manager
from optest.backends.arguments import at_their_places
from optest.core.runner import execute, why_not_run
from optest.numerics import round_to, ulp, widen
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS
from optest.registry import load_object
from optest.reporting.bias import bias_text, operator_biases
from optest.spec import BAD_STATUSES, CaseResult, DType, Numerics, RuleClass, TestCase

__all__ = ["ROUNDINGS", "Rounded", "ask"]

Array = Any
Rounds = Callable[[Array, Array, Array, np.random.Generator], Array]
"""True values, the nearest of the dtype, the gaps of the dtype there, and noise to results."""

BOUNDED = frozenset({RuleClass.ULP, RuleClass.ACCUMULATE, RuleClass.COMPOSED})
HONEST = ("torch", single_backend.NAME)


def down(true: Array, nearest: Array, gap: Array, _: np.random.Generator) -> Array:
    return np.where(nearest > true, nearest - gap, nearest)


def up(true: Array, nearest: Array, gap: Array, rng: np.random.Generator) -> Array:
    return -down(-true, -nearest, gap, rng)


def toward_zero(true: Array, nearest: Array, gap: Array, rng: np.random.Generator) -> Array:
    return np.where(true > 0, down(true, nearest, gap, rng), up(true, nearest, gap, rng))


def from_zero(true: Array, nearest: Array, gap: Array, rng: np.random.Generator) -> Array:
    return np.where(true > 0, up(true, nearest, gap, rng), down(true, nearest, gap, rng))


def sometimes(rounds: Rounds, share: float) -> Rounds:
    return lambda true, nearest, gap, rng: np.where(
        rng.random(true.shape) < share, rounds(true, nearest, gap, rng), nearest
    )


def moved(ulps: float) -> Rounds:
    """True values moved away from zero by a share of an ulp, as a coefficient that is off does, then rounded."""
    return lambda true, nearest, gap, _: nearest + gap * np.rint((true - nearest) / gap + np.sign(true) * ulps)


def noisy(ulps: float) -> Rounds:
    """Errors of a polynomial that leans to no side."""
    return lambda true, nearest, gap, rng: (
        nearest + gap * np.rint((true - nearest) / gap + rng.uniform(-ulps, ulps, true.shape))
    )


ROUNDINGS: dict[str, Rounds] = {
    "to the nearest": lambda _, nearest, __, ___: nearest,
    "to the nearest, noise of ±0.5 ulp before it": noisy(0.5),
    "to the nearest, noise of ±1 ulp before it": noisy(1.0),
    "toward zero": toward_zero,
    "down": down,
    "up": up,
    "away from zero": from_zero,
    "toward zero, one result in two": sometimes(toward_zero, 0.5),
    "toward zero, one result in four": sometimes(toward_zero, 0.25),
    "0.3 ulp too large before it": moved(0.3),
    "0.1 ulp too large before it": moved(0.1),
}
BLAMELESS = tuple(ROUNDINGS)[:3]


class Rounded(BackendDriver):
    """Answers of the references, rounded in one of the ways."""

    kind = "cpu"
    isolated = False
    numerics = Numerics(accumulator="float32")

    def __init__(self, name: str) -> None:
        self.name = name
        self._rounds = ROUNDINGS[name]

    def run(self, case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
        reference = load_object(str(case.descriptor.reference))
        with np.errstate(all="ignore"):
            right = reference(at_their_places(case, list(inputs)), dict(case.attributes))
            pairs = zip(right, case.outputs, strict=True)
            return [self._stored(np.asarray(each), spec.dtype) for each, spec in pairs]

    def _stored(self, true: Array, dtype: DType) -> Array:
        if true.dtype != np.float64 or not 0 < dtype.precision < 53:
            return round_to(true, dtype)
        nearest = widen(round_to(true, dtype))
        rng = np.random.default_rng(zlib.crc32(true.tobytes()))
        chosen = np.isfinite(nearest) & (nearest != true)
        there = self._rounds(true, nearest, ulp(true, dtype), rng)
        return round_to(np.where(chosen & np.isfinite(there), there, nearest), dtype)


@dataclass(slots=True, kw_only=True)
class Found:
    """What a check would say of one operator: lines of sides, and cases that failed, by operator and dtype."""

    backend: str
    lines: dict[str, str] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


def ask(backend: str, op: str, seed: int) -> Found:
    """Ask the default tier of an operator, in this process."""
    _prepare(backend)
    request = check_request({"backend": backend, "op": (op,), "seed": seed})
    driver, found, results = request.run.driver, Found(backend=backend), []
    for case in request.run.cases:
        verdict = why_not_run(case, driver) or execute([case], driver, every_measure=True).verdicts[0]
        verdict = request.run.expectations.excused(case, verdict)
        for measure in verdict.measures:
            if measure.rounding is not None:
                found.asked[f"{op} {measure.dtype}"] += 1
                found.failed[f"{op} {measure.dtype}"] += verdict.status in BAD_STATUSES
        results.append(
            CaseResult(
                id=case.id,
                key=case.key,
                operator=op,
                target=backend,
                reference="",
                mode="",
                verdict=verdict,
                seed=seed,
            )
        )
    found.lines = {name: bias_text(bias) for name, bias in operator_biases(results)}
    return found


def _prepare(backend: str) -> None:
    bootstrap()
    single_backend.register()
    if backend in ROUNDINGS:
        backend_manager.register(Rounded(backend), replace=True)
    if backend == "torch":
        import torch

        torch.set_num_threads(1)


def _named(found: Sequence[Found], dtype: str) -> tuple[int, int, int]:
    """Pairs of operator and seed in this dtype that were asked, named, and not named but rejected."""
    asked = named = rejected = 0
    for each in found:
        for which in each.asked:
            if which.endswith(f" {dtype}"):
                asked += 1
                told = which in each.lines or any(line.partition(".")[0] == which.split()[0] for line in each.lines)
                named += told
                rejected += not told and bool(each.failed[which])
    return asked, named, rejected


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--backend", action="append", choices=(*HONEST, *ROUNDINGS), help="this one. Repeatable.")
    parser.add_argument("--op", action="append", help="this operator. Repeatable.")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    bootstrap()
    chosen = {operators.get(name).name for name in given.op or []}
    names = [
        each.name
        for each in DESCRIPTORS
        if each.rule is not None and each.rule.kind in BOUNDED and each.samples and (not chosen or each.name in chosen)
    ]
    dtypes = ("float32", "float16", "bfloat16")
    print(f"| backend | {' | '.join(f'{each}: named, rejected of asked' for each in dtypes)} |")
    print("|---|---|---|---|")
    lines: list[str] = []
    wrong: list[str] = []
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for backend in given.backend or (*HONEST, *ROUNDINGS):
            of = [each for each in names if backend != single_backend.NAME or each in single_backend.KERNELS]
            asked = [(backend, op, seed) for seed in range(given.seeds) for op in of]
            found = list(pool.map(ask, *zip(*asked, strict=True)))
            counts = [_named(found, each) for each in dtypes]
            print(f"| {backend} | {' | '.join(f'{n}, {r} of {a}' for a, n, r in counts)} |", flush=True)
            if backend in HONEST:
                lines += [f"- {backend}: {which}: {text}" for each in found for which, text in each.lines.items()]
            if backend in BLAMELESS:
                wrong += [f"{backend}: {which}: {text}" for each in found for which, text in each.lines.items()]
            elif backend in ("toward zero", "down", "up", "away from zero") and given.op is None:
                count, named, rejected = counts[0]
                wrong += [f"{backend}: {named + rejected} of {count}"] if named + rejected < 0.9 * count else []
    print("", *lines, *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
