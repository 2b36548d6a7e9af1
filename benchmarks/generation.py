"""How fast inputs are made, against NumPy's own generator in the same run.

Run with ``python benchmarks/generation.py [ELEMENTS]``; prints a ratio for each line (above 1: faster than NumPy).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from optest.generators import RandomTensorGenerator
from optest.spec import Argument, Fill, OperatorDescriptor, TensorSpec, TestCase, dtype

LARGE = 1 << 24
SMALL_RUNS = 20_000
ROUNDS = 5


def case_of(dtype_name: str, elements: int, kind: str) -> TestCase:
    spec = TensorSpec(dtype=dtype(dtype_name), shape=(elements,))
    argument = Argument(name="a", path="input0", spec=spec, fill=Fill(kind=kind))
    return TestCase(descriptor=OperatorDescriptor(name="op", signature="a -> out"), inputs=(argument,))


def best_s(*works: Callable[[], object]) -> list[float]:
    """The shortest processor time of each, taken in turns so that a busy machine is unfair to none."""
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for index, work in enumerate(works):
            start = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - start)
    return best


def main() -> None:
    elements = int(sys.argv[1]) if len(sys.argv) > 1 else LARGE
    rng = np.random.Generator(np.random.PCG64(0))
    generate = RandomTensorGenerator().generate
    against = {
        "randn": {name: lambda t=t: rng.standard_normal(elements, t) for name, t in _FLOATS.items()},
        "uniform": {name: lambda t=t: rng.random(elements, t) for name, t in _FLOATS.items()},
        "randint": {"int32": lambda: rng.integers(-(2**30), 2**30, elements, np.int32)},
    }
    against["randn"]["float16"] = lambda: rng.standard_normal(elements, np.float32).astype(np.float16)
    print(f"{elements} elements; NumPy {np.__version__} PCG64")
    print(f"{'fill':<10}{'dtype':<10}{'optest ns':>10}{'NumPy ns':>10}{'ratio':>8}")
    for kind, by_dtype in against.items():
        for name, numpy_way in by_dtype.items():
            case = case_of(name, elements, kind)
            ours, theirs = best_s(lambda case=case: generate(case), numpy_way)
            each = f"{ours / elements * 1e9:>10.2f}{theirs / elements * 1e9:>10.2f}"
            print(f"{kind:<10}{name:<10}{each}{theirs / ours:>8.2f}")
    _small()


_FLOATS = {"float32": np.float32, "float64": np.float64}


def _small() -> None:
    generate = RandomTensorGenerator().generate
    print("\none input of 4 elements; NumPy: default_rng([seed, case]).standard_normal(4)")
    print(f"{'fill':<10}{'dtype':<10}{'optest us':>10}{'NumPy us':>10}{'ratio':>8}")
    for name, kind in _SMALL:
        case = case_of(name, 4, kind)
        ours, theirs = best_s(
            lambda case=case: [generate(case) for _ in range(SMALL_RUNS)],
            lambda: [np.random.default_rng([7, index]).standard_normal(4) for index in range(SMALL_RUNS // 10)],
        )
        theirs *= 10
        each = f"{ours / SMALL_RUNS * 1e6:>10.2f}{theirs / SMALL_RUNS * 1e6:>10.2f}"
        print(f"{kind:<10}{name:<10}{each}{theirs / ours:>8.2f}")


_SMALL = (("float32", "randn"), ("bfloat16", "randn"), ("float32", "uniform"), ("int32", "randint"), ("int32", "randn"))


if __name__ == "__main__":
    main()
