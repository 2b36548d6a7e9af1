"""How fast a passing verdict over one output is, against torch.testing.assert_close and np.testing.assert_allclose.

    python benchmarks/verdict_throughput.py [--quick] [--repeats 5]

All of them compare the same arrays with rtol = atol = 1e-2, in turns, one thread each; the best of the repeats
counts. The class rule reads a float64 reference (and rounds, bounds and adds up in float64). Peak memory is what
Python allocates during the verdict (tracemalloc), beside the two arrays.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from optest.compare import Expected
from optest.compare.verdict import judge
from optest.numerics import round_to
from optest.spec import (
    Argument,
    Fill,
    Layer,
    Numerics,
    OperatorDescriptor,
    Rule,
    RuleClass,
    Status,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    dtype,
)

DTYPES = ("float32", "float16", "bfloat16", "int32")
SIZES = (1_000, 1_000_000, 50_000_000)
QUICK = (1_000, 1_000_000, 5_000_000)
TOLERANCE = 1e-2


def arrays(name: str, size: int) -> tuple[Any, Any, Any]:
    """Actual, expected in the same dtype, and the float64 reference of the class rule."""
    rng = np.random.default_rng(size)
    if name == "int32":
        expected = rng.integers(-1000, 1000, size, dtype=np.int32)
        return expected.copy(), expected, expected
    reference = rng.standard_normal(size)
    expected = round_to(reference, dtype(name))
    return round_to(reference * (1.0 + 2.0**-26), dtype(name)), expected, reference


def case_of(name: str, size: int, *, by_class: bool) -> TestCase:
    layer = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=TOLERANCE, atol=TOLERANCE))
    return TestCase(
        descriptor=OperatorDescriptor(name="probe", signature="x -> out", rule=Rule(kind=RuleClass.ULP, ulp=4.0)),
        inputs=(
            Argument(
                name="x",
                path="input0",
                spec=TensorSpec(dtype=dtype(name), shape=(size,)),
                fill=Fill(kind="randn"),
            ),
        ),
        tolerances=() if by_class else (layer,),
    )


def verdict(name: str, actual: Any, value: Any, *, by_class: bool) -> Callable[[], None]:
    case = case_of(name, actual.size, by_class=by_class)
    expected = [Expected(name="out", dtype=dtype(name), shape=actual.shape, value=value)]
    numerics = Numerics()

    def ask() -> None:
        if judge(case, [actual], expected, numerics=numerics).status is not Status.PASSED:
            raise AssertionError(f"{name}: a passing verdict was to be timed")

    return ask


def torch_close(name: str, actual: Any, expected: Any) -> Callable[[], None] | None:
    try:
        import torch
    except ModuleNotFoundError:
        return None
    torch.set_num_threads(1)

    def tensor(array: Any) -> Any:
        if name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    left, right = tensor(actual), tensor(expected)
    return lambda: torch.testing.assert_close(left, right, rtol=TOLERANCE, atol=TOLERANCE)


def numpy_close(actual: Any, expected: Any) -> Callable[[], None]:
    return lambda: np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def best(asked: dict[str, Callable[[], None]], repeats: int, size: int) -> dict[str, float]:
    """The least seconds of each, asked in turns; the slow ones fewer times."""
    seconds = dict.fromkeys(asked, float("inf"))
    for repeat in range(repeats):
        for name, ask in asked.items():
            if size > 2_000_000 and repeat and name == "numpy":
                continue
            times = max(1, 20_000 // size)
            start = time.perf_counter()
            for _ in range(times):
                ask()
            seconds[name] = min(seconds[name], (time.perf_counter() - start) / times)
    return seconds


def peak_bytes(ask: Callable[[], None]) -> int:
    tracemalloc.start()
    ask()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5e6 elements in place of 5e7")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    print(
        "| dtype | elements | rtol/atol | class rule | torch / optest | NumPy / optest | class / rtol | peak memory |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in DTYPES:
        for size in QUICK if given.quick else SIZES:
            actual, expected, reference = arrays(name, size)
            asked = {
                "tolerance": verdict(name, actual, expected, by_class=False),
                "class": verdict(name, actual, reference, by_class=True),
                "numpy": numpy_close(actual, expected),
            }
            by_torch = torch_close(name, actual, expected)
            if by_torch is not None:
                asked["torch"] = by_torch
            seconds = best(asked, given.repeats, size)
            peak = max(peak_bytes(asked["tolerance"]), peak_bytes(asked["class"]))
            ratio = f"{seconds['torch'] / seconds['tolerance']:.1f}" if "torch" in seconds else ""
            print(
                f"| {name} | {size:.0e} | {shown(seconds['tolerance'])} | {shown(seconds['class'])} | {ratio} "
                f"| {seconds['numpy'] / seconds['tolerance']:.1f} | {seconds['class'] / seconds['tolerance']:.1f} "
                f"| {peak / 1e6:.1f} MB |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
