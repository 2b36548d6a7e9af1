"""What does planning cost: explicit cases against the YAML loader, a compact plan against a bare loop?

    python benchmarks/planning.py [--quick] [--rounds 6]

First a plan of explicit cases, each with its own shapes and seed, then a plan whose one case is a product. Processor
time, the least of several rounds; a round of the product is a whole ``optest list`` without the printing. The
fingerprint of the cases, which a run computes before its first execution, has a column of its own.
"""

from __future__ import annotations

import gc
import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import kit
import yaml

from optest.api.run_request import run_request
from optest.backends import backend_manager
from optest.core.provenance import fingerprint
from optest.core.results import executions
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


def explicit(count: int, rounds: int) -> None:
    text = plan(count)
    document = parse_plan(text, "plan.yaml")

    host = PlanHost(
        operators=operators,
        target=BackendTarget(name="numpy"),
        check_fill=check_fill,
        backend_names=backend_manager.names(),
    )

    def build() -> Any:
        return build_cases(document, CaseRequest(), host)

    cases = build()
    loader = "the C loader of PyYAML"
    sides: dict[str, Callable[[], Any]] = {
        loader: lambda: yaml.load(text, Loader=yaml.CSafeLoader),
        "parse_plan: composed, checked, with lines": lambda: parse_plan(text, "plan.yaml"),
        "build_cases": build,
        "select by -k": lambda: select(cases, keyword="matmul and not softmax"),
    }
    least = {name: seconds.processor for name, seconds in kit.least(sides, rounds).items()}
    # New cases for each round, because a case remembers its key.
    fresh = [build() for _ in range(rounds)]
    least["grouped into executions, keys included"] = min(kit.timed(partial(executions, x)).processor for x in fresh)
    rows = [(name, f"{x / count * 1e6:.1f}", f"{x / least[loader]:.2f}") for name, x in least.items()]
    print(kit.table((f"{count} explicit cases", "µs a case", "× the C loader"), rows))


def product_text(sizes: Sequence[int]) -> str:
    axes = [list(range(1, size + 1)) for size in sizes]
    return PRODUCT.format(**dict(zip(("m", "k", "n", "seed"), axes, strict=True)))


def planned(path: Path) -> int:
    """Plan a file as a list does: expand, check, select and deduplicate."""
    return len(executions(run_request({"plan": str(path), "keyword": "matmul and not softmax"}).cases))


def ready(path: Path) -> int:
    """Plan a file as a run does, with the fingerprint of its cases."""
    request = run_request({"plan": str(path), "keyword": "matmul and not softmax"})
    fingerprint(plans=[path], cases=request.cases, plugins=(), driver=request.driver, options={})
    return len(executions(request.cases))


def bare(sizes: Sequence[int]) -> int:
    """Build the same cases without checks, names or lines, and deduplicate them by their keys."""
    descriptor = operators.get("matmul")
    infer: Any = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
    attributes = descriptor.bind({})
    fill = Fill(kind="randn")
    target = BackendTarget(name="numpy")
    tolerances = (ToleranceLayer(layer=Layer.PLAN, tolerance=Tolerance(rtol=1e-3)),)
    axes = [range(1, size + 1) for size in sizes]
    cases: dict[str, TestCase] = {}
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
        cases[case.key] = case
    return len(cases)


def compact(scale: int, rounds: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.yaml")
        for name, (m, k, n, seeds) in SHAPES.items():
            sizes = (m, k, n // scale if seeds == 1 else n, max(1, seeds // scale))
            count = 2 * math.prod(sizes)
            path.write_text(product_text(sizes))
            sides = {
                "planned": partial(_expect, count, partial(planned, path)),
                "bare": partial(_expect, count, partial(bare, sizes)),
                "ready": partial(_expect, count, partial(ready, path)),
            }
            sides["planned"]()  # imports and caches
            times = {side: [x.processor for x in seconds] for side, seconds in kit.in_turns(sides, rounds).items()}
            least = {side: min(seconds) for side, seconds in times.items()}
            per_case, ratio = least["planned"] / count * 1e6, least["planned"] / least["bare"]
            most = f"{max(times['planned']):.2f}"
            rows.append(
                (name, f"{least['planned']:.2f}", most, f"{per_case:.1f}", f"{ratio:.2f}", f"{least['ready']:.2f}")
            )
    columns = ("s", f"most of {rounds} rounds", "µs a case", "× a bare loop that builds the same", "s, ready to run")
    print("", kit.table((f"{100_000 // scale:,} cases of one product", *columns), rows), sep="\n")


def _expect(count: int, work: Callable[[], int]) -> None:
    built = work()
    assert built == count, f"{built} executions, expected {count}"
    # Planning freezes its objects. The next round begins with a collection, which has to include them.
    gc.unfreeze()


def main() -> None:
    parser = kit.parser(__doc__, quick="fewer cases and rounds")
    parser.add_argument("--rounds", type=int, default=6, help="of which the least counts")
    options = parser.parse_args()
    explicit(1000 if options.quick else 5000, options.rounds)
    compact(5 if options.quick else 1, options.rounds)


if __name__ == "__main__":
    main()
