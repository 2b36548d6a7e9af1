"""What reading, building, selecting and grouping the cases of a plan costs, against the YAML loader alone.

    python benchmarks/planning.py [--quick]

A plan of explicit cases, each with its own shapes and seed; processor time, the least of several rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import yaml

from optest.backends import backend_manager
from optest.core.schedule import executions
from optest.generators.fills import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, build_cases, parse_plan
from optest.plan.select import select
from optest.spec import BackendTarget

CASE = "  - {{op: matmul, dtypes: [float16, float16], shapes: {{input0: [64, {k}], input1: [{k}, 32]}}, seed: {k}}}\n"


def plan(count: int) -> bytes:
    head = "version: 1\ndefaults: {tolerance: {rtol: 1.0e-3}}\ncases:\n"
    return (head + "".join(CASE.format(k=index + 1) for index in range(count))).encode()


def least_s(work: Callable[[Any], Any], given: Callable[[], Any], rounds: int) -> float:
    """The least processor time of ``work`` on what ``given`` makes anew each time."""
    best = float("inf")
    for _ in range(rounds):
        subject = given()
        began = time.process_time()
        work(subject)
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    quick = parser.parse_args().quick
    count, rounds = (1000, 2) if quick else (5000, 4)
    text = plan(count)
    driver = backend_manager.get("numpy")

    document = parse_plan(text, "plan.yaml")

    def build(_: Any = None) -> Any:
        return build_cases(
            document,
            CaseRequest(),
            operators=operators,
            target_of=lambda _name, _chip: BackendTarget(name="numpy"),
            check_fill=check_fill,
            check_backend=driver.problems,
            backend_names=backend_manager.names(),
        )

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


if __name__ == "__main__":
    main()
