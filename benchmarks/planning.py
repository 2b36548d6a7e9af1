"""What planning costs: explicit cases against the YAML loader alone, a compact plan against a bare loop.

    python benchmarks/planning.py [--quick] [--rounds 6]

First a plan of explicit cases, each with its own shapes and seed, then a plan whose one case is a product. Processor
time, the least of several rounds; a round of the product is a whole ``optest list`` but for the printing. What a run
does besides before its first execution, the fingerprint of its cases, has a column of its own.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from optest.api.run_request import run_request
from optest.backends import backend_manager
from optest.core.provenance import fingerprint
from optest.core.session import executions
from optest.generators.fills import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanHost, build_cases, parse_plan
from optest.plan.select import select
from optest.registry import load_object
from optest.spec import Argument, BackendTarget, Fill, Layer, TensorSpec, TestCase, Tolerance, ToleranceLayer, dtype

CASE = "  - {{op: matmul, dtypes: [float16, float16], shapes: {{input0: [64, {k}], input1: [{k}, 32]}}, seed: {k}}}\n"
PRODUCT = """\
version: 1
defaults: {{tolerance: {{rtol: 1.0e-3}}}}
cases:
  - op: matmul
    product: {{dtypes: [float16, float32], m: {m}, k: {k}, n: {n}, seed: {seed}}}
    shapes: {{input0: [$m, $k], input1: [$k, $n]}}
"""
SHAPES = {
    "few shapes, many seeds": (5, 5, 4, 500),
    "as many shapes as seeds": (20, 10, 25, 10),
    "shapes alone": (50, 40, 25, 1),
}
"""How many values m, k, n and seed have; with two dtypes 100,000 combinations."""


def plan(count: int) -> bytes:
    head = "version: 1\ndefaults: {tolerance: {rtol: 1.0e-3}}\ncases:\n"
    return (head + "".join(CASE.format(k=index + 1) for index in range(count))).encode()


def seconds(work: Callable[[Any], Any], given: Callable[[], Any]) -> float:
    """The processor time of ``work`` on what ``given`` makes anew."""
    subject = given()
    began = time.process_time()
    work(subject)
    return time.process_time() - began


def least_s(work: Callable[[Any], Any], given: Callable[[], Any], rounds: int) -> float:
    return min(seconds(work, given) for _ in range(rounds))


def explicit(count: int, rounds: int) -> None:
    text = plan(count)
    document = parse_plan(text, "plan.yaml")

    host = PlanHost(
        operators=operators,
        target=BackendTarget(name="numpy"),
        check_fill=check_fill,
        backend_names=backend_manager.names(),
    )

    def build(_: Any = None) -> Any:
        return build_cases(document, CaseRequest(), host)

    loader = least_s(lambda raw: yaml.load(raw, Loader=yaml.CSafeLoader), lambda: text, rounds)
    rows = {
        "the C loader of PyYAML alone": loader,
        "parse_plan: composed, checked, with lines": least_s(
            lambda raw: parse_plan(raw, "plan.yaml"), lambda: text, rounds
        ),
        "build_cases": least_s(build, lambda: None, rounds),
        "select by -k": least_s(lambda cases: select(cases, keyword="matmul and not softmax"), build, rounds),
        "grouped into executions, keys included": least_s(executions, build, rounds),
    }
    print(f"| {count} explicit cases | µs a case | × the C loader |")
    print("|---|--:|--:|")
    for word, seconds in rows.items():
        print(f"| {word} | {seconds / count * 1e6:.1f} | {seconds / loader:.2f} |")


def product_text(sizes: Sequence[int]) -> str:
    axes = [list(range(1, size + 1)) for size in sizes]
    return PRODUCT.format(**dict(zip(("m", "k", "n", "seed"), axes, strict=True)))


def planned(path: Path) -> int:
    """Expanded, checked, selected, deduped."""
    return len(executions(run_request({"plan": str(path), "keyword": "matmul and not softmax"}).cases))


def ready(path: Path) -> int:
    """Planned, with the fingerprint that a run compares before it begins."""
    found = run_request({"plan": str(path), "keyword": "matmul and not softmax"})
    fingerprint(plans=[path], cases=found.cases, plugins=(), driver=found.driver)
    return len(executions(found.cases))


def bare(sizes: Sequence[int]) -> int:
    """The same cases made without checks, names or places, and told apart by their keys."""
    descriptor = operators.get("matmul")
    infer: Any = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
    attributes = descriptor.bind({})
    fill = Fill(kind="randn")
    target = BackendTarget(name="numpy")
    tolerances = (ToleranceLayer(layer=Layer.PLAN, tolerance=Tolerance(rtol=1e-3)),)
    axes = [range(1, size + 1) for size in sizes]
    found: dict[str, TestCase] = {}
    combinations: Any = itertools.product(("float16", "float32"), *axes)
    for name, m, k, n, seed in combinations:
        element = dtype(name)
        a, b = TensorSpec(dtype=element, shape=(m, k)), TensorSpec(dtype=element, shape=(k, n))
        case = TestCase(
            descriptor=descriptor,
            inputs=(
                Argument(name="input", path="input0", spec=a, fill=fill),
                Argument(name="other", path="input1", spec=b, fill=fill),
            ),
            outputs=tuple(infer([a, b], attributes)),
            attributes=attributes,
            backend=target,
            tolerances=tolerances,
            seed=seed,
        )
        found[case.key] = case
    return len(found)


def collected(work: Callable[[Any], int], count: int) -> Callable[[Any], None]:
    def checked(given: Any) -> None:
        found = work(given)
        assert found == count, f"{found} executions, but should be {count}"

    return checked


def compact(scale: int, rounds: int) -> None:
    print(f"\n| {100_000 // scale:,} cases of one product | s | most of {rounds} rounds | µs a case |", end="")
    print(" × a bare loop that makes the same | s, ready to run |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.yaml")
        for word, (m, k, n, seeds) in SHAPES.items():
            sizes = (m, k, n // scale if seeds == 1 else n, max(1, seeds // scale))
            count = 2 * math.prod(sizes)
            path.write_text(product_text(sizes))
            ways = [
                partial(seconds, collected(planned, count), partial(_free, path)),
                partial(seconds, collected(bare, count), partial(_free, sizes)),
                partial(seconds, collected(ready, count), partial(_free, path)),
            ]
            ways[0]()  # what is imported or remembered is warm
            ours, loop, run = zip(*[[way() for way in ways] for _ in range(rounds)], strict=True)
            least = min(ours)
            print(f"| {word} | {least:.2f} | {max(ours):.2f} | {least / count * 1e6:.1f} |", end="")
            print(f" {least / min(loop):.2f} | {min(run):.2f} |")


def _free(subject: Any) -> Any:
    """Let go of what earlier rounds made, so that each round begins alike."""
    gc.unfreeze()
    gc.collect()
    return subject


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    parser.add_argument("--rounds", type=int, default=6, help="of which the least counts")
    given = parser.parse_args()
    explicit(1000 if given.quick else 5000, given.rounds)
    compact(5 if given.quick else 1, given.rounds)


if __name__ == "__main__":
    main()
