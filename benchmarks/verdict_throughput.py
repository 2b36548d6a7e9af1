"""How fast is a passing verdict over one output, against torch.testing.assert_close and np.testing.assert_allclose?

    python benchmarks/verdict_throughput.py [--quick] [--repeats 5]

All of them compare the same arrays with rtol = atol = 1e-2, with one thread; the least time of the repeats counts. The
class rule reads a float64 reference (and rounds, bounds and adds up in float64). Peak memory is the allocation of
Python during the verdict (tracemalloc), without the two arrays.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import kit
import numpy as np

from optest.compare import Expected
from optest.compare.verdict import compare_outputs
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
    """Return the output, the expected one in the same dtype, and the float64 reference of the class rule."""
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

    def compare() -> None:
        if compare_outputs(case, [actual], expected, numerics=numerics).status is not Status.PASSED:
            raise AssertionError(f"{name}: a passing verdict was to be timed")

    return compare


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


def repeated(call: Callable[[], None], times: int) -> None:
    for _ in range(times):
        call()


def peak_bytes(call: Callable[[], None]) -> int:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measured(name: str, size: int, repeats: int) -> tuple[str, ...]:
    """Return the row of one dtype and size."""
    actual, expected, reference = arrays(name, size)
    sides: dict[str, Callable[[], None]] = {
        "tolerance": verdict(name, actual, expected, by_class=False),
        "class": verdict(name, actual, reference, by_class=True),
        "numpy": numpy_close(actual, expected),
    }
    if by_torch := torch_close(name, actual, expected):
        sides["torch"] = by_torch
    times = max(1, 20_000 // size)
    least = kit.least({side: partial(repeated, call, times) for side, call in sides.items()}, repeats)
    seconds = {side: x.wall / times for side, x in least.items()}
    tolerance = seconds["tolerance"]
    return (
        name,
        f"{size:.0e}",
        shown(tolerance),
        shown(seconds["class"]),
        f"{seconds['torch'] / tolerance:.1f}" if by_torch else "",
        f"{seconds['numpy'] / tolerance:.1f}",
        f"{seconds['class'] / tolerance:.1f}",
        f"{max(peak_bytes(sides['tolerance']), peak_bytes(sides['class'])) / 1e6:.1f} MB",
    )


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def main() -> None:
    parser = kit.parser(__doc__, quick="5e6 elements in place of 5e7")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows = [measured(x, size, options.repeats) for x in DTYPES for size in (QUICK if options.quick else SIZES)]
    ratios = ("torch / optest", "NumPy / optest", "class / rtol")
    print(kit.table(("dtype", "elements", "rtol/atol", "class rule", *ratios, "peak memory"), rows))


if __name__ == "__main__":
    main()
