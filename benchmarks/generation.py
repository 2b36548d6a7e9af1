"""How fast are inputs generated, against NumPy's own generator in the same run?

    python benchmarks/generation.py [ELEMENTS]

Prints a ratio for each row; above 1, optest is faster than NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import kit
import numpy as np

from optest.generators import RandomTensorGenerator
from optest.spec import Argument, Fill, OperatorDescriptor, TensorSpec, TestCase, dtype

LARGE = 1 << 24
SMALL_RUNS = 20_000
REPEATS = 5
_SMALL = (("randn", "float32"), ("randn", "bfloat16"), ("uniform", "float32"), ("randint", "int32"), ("randn", "int32"))


def case_of(dtype_name: str, elements: int, kind: str) -> TestCase:
    spec = TensorSpec(dtype=dtype(dtype_name), shape=(elements,))
    argument = Argument(name="a", path="input0", spec=spec, fill=Fill(kind=kind))
    return TestCase(descriptor=OperatorDescriptor(name="op", signature="a -> out"), inputs=(argument,))


def row(kind: str, name: str, ours: Callable[[], object], theirs: Callable[[], object], count: int) -> tuple[str, ...]:
    """Return the nanoseconds of one of ``count`` things on either side, and their ratio."""
    times = kit.least({"optest": ours, "NumPy": theirs}, REPEATS)
    optest, numpy = (times[side].processor / count * 1e9 for side in ("optest", "NumPy"))
    return kind, name, f"{optest:.2f}", f"{numpy:.2f}", f"{numpy / optest:.2f}"


def main() -> None:
    parser = kit.parser(__doc__)
    parser.add_argument("elements", nargs="?", type=int, default=LARGE)
    elements = parser.parse_args().elements
    rng = np.random.Generator(np.random.PCG64(0))
    generate = RandomTensorGenerator().generate
    numpy_ways: dict[tuple[str, str], Callable[[], object]] = {
        ("randn", "float32"): lambda: rng.standard_normal(elements, np.float32),
        ("randn", "float64"): lambda: rng.standard_normal(elements, np.float64),
        ("randn", "float16"): lambda: rng.standard_normal(elements, np.float32).astype(np.float16),
        ("uniform", "float32"): lambda: rng.random(elements, np.float32),
        ("uniform", "float64"): lambda: rng.random(elements, np.float64),
        ("randint", "int32"): lambda: rng.integers(-(2**30), 2**30, elements, np.int32),
    }
    columns = ("fill", "dtype", "optest ns", "NumPy ns", "ratio")
    rows = [
        row(kind, name, partial(generate, case_of(name, elements, kind)), numpy_way, elements)
        for (kind, name), numpy_way in numpy_ways.items()
    ]
    print(f"{elements:,} elements, ns each; NumPy {np.__version__} PCG64\n", kit.table(columns, rows), sep="\n")

    def generate_all(case: TestCase) -> None:
        for _ in range(SMALL_RUNS):
            generate(case)

    def numpy_all() -> None:
        for index in range(SMALL_RUNS):
            np.random.default_rng([7, index]).standard_normal(4)

    rows = [
        row(kind, name, partial(generate_all, case_of(name, 4, kind)), numpy_all, SMALL_RUNS) for kind, name in _SMALL
    ]
    print(
        "\none input of 4 elements; NumPy: default_rng([seed, case]).standard_normal(4)\n",
        kit.table(columns, rows),
        sep="\n",
    )


if __name__ == "__main__":
    main()
