"""A table of wrong kernels for every class of rule, judged by the built-in rules: what share of them is rejected?

    python benchmarks/wrong_variants.py [--seeds 5] [--class CLASS] [--width N] [--jobs 2] [--verbose]

Each variant answers the calls of ``width_calls.py`` (or the same with other values) in every dtype, width and seed. It
is asked only where its bits differ from those of the right answer, since else it is right. A variant that is not always
rejected says why; the script exits with 1 if one without a reason is not, or if one was never asked.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from width_calls import DTYPES, cases_of_width

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

import wrong_kernels_of_width as kernels
from wrong_kernels import FAULTS, Call, Change, Fault, Faulty
from wrong_kernels.any_operator import faults_of

from optest.api import bootstrap
from optest.backends.numpy_reference import NumpyBackend
from optest.compare.verdict import judge
from optest.core.expected import expected_outputs
from optest.core.inputs import make_inputs
from optest.operators import operators
from optest.spec import BackendTarget, Numerics, Status, TestCase

__all__ = ["CLASSES", "Tally", "Variant", "tallies", "variants"]

Array = Any
CLASSES = ("movement", "exact", "ulp", "accumulate", "composed", "alternatives")
WIDTHS = (17, 4096, 65_536)
"""Those of ``widths.py`` but for 1, where many a fault is none: one element cannot be out of order."""
_NUMERICS = Numerics()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One wrong kernel.

    ``generator`` and ``attributes`` replace those of the calls, where the fault shows with others alone; ``most`` is
    the widest call that it is asked; ``below`` says why not every answer is rejected.
    """

    kind: str
    op: str
    name: str
    change: Change
    generator: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    most: int = WIDTHS[-1]
    below: str = ""


def _new(kind: str, op: str, name: str, **more: Any) -> Variant:
    """A kernel for these calls alone."""
    return Variant(kind=kind, op=op, name=name, change=FAULTS[f"{op}: {name}"].change, **more)


def _known(kind: str, name: str, **more: Any) -> Variant:
    """A fault that every check finds."""
    fault = FAULTS[name]
    words = name.removeprefix(fault.op.replace("_", "-") + "-").replace("-", " ")
    return Variant(kind=kind, op=fault.op, name=words, change=fault.change, **more)


def _generic(kind: str, op: str, name: str, **more: Any) -> Variant:
    """A fault that every operator can have."""
    (found,) = (fault for fault in faults_of(operators.get(op)) if fault.name == f"{op}: {name}")
    return Variant(kind=kind, op=op, name=name, change=found.change, **more)


def _of_any(kind: str, op: str, name: str, change: Change, **more: Any) -> Variant:
    return Variant(kind=kind, op=op, name=name, change=change, **more)


_SPECIAL = "special"
_LARGE = {"fill": "randn", "std": 60.0}
_NEAR_0 = {"fill": "randn", "std": 2.0**-9}
_FAR_FROM_0 = {"fill": "uniform", "low": 84.0, "high": 92.0}
_FEW_INTEGERS = {"fill": "randint", "low": -3, "high": 4}
_BIT = "last bit of one element"
_IN_16_BITS = "below rounding: the 16 bits of the result do not show it everywhere"
_FAR_OFF = {"fill": "randn", "mean": 1000.0, "std": 1.0}
_FEW_LONG_SUMS = "within the rule: sums of 4,096 terms and more may lose as much in float32; few elements, no statistic"
_ADDEND = "below rounding: in 16 bits, sums of thousands of products dwarf what is added to them"
_WEIGHTS = "within the rule: attention weights may be rounded to the inputs' 16 bits before they meet the values"
_ONE_OF_MANY = "below rounding: one term of many thousands"
_ONE_PART = "within the rule: one part in 65,536, while the sum may be off by 4·√65,536 roundings of its terms"
_MEAN = "within the rule: at 65,536 an honest mean may lose as much; and below the rounding of 16 bits"
_TIED = "right: the two values are equal, and either index of a tie is"


def _variants() -> Iterator[Variant]:
    yield from _of_movement()
    yield from _of_exact()
    yield from _of_ulp()
    yield from _of_accumulate()
    yield from _of_composed()
    yield from _of_alternatives()


def _of_movement() -> Iterator[Variant]:
    kind = "movement"
    for op in ("transpose", "reshape", "gather", "concat", "sort"):
        yield _of_any(kind, op, _BIT, kernels.one_bit)
    yield _known(kind, "transpose-reshapes")
    yield _known(kind, "roll-the-other-way")
    yield _known(kind, "where-swaps-branches")
    yield _known(kind, "tril-ignores-diagonal")
    yield _known(kind, "pad-ignores-value")
    yield _known(kind, "abs-drops-nan", generator=_SPECIAL)
    yield _known(kind, "sort-ignores-descending", attributes={"descending": True})
    yield _known(kind, "topk-ignores-largest", attributes={"largest": False})
    yield _new(kind, "neg", "0 stays +0", generator=_SPECIAL)
    yield _new(kind, "abs", "-0 stays -0", generator=_SPECIAL)
    yield _new(kind, "slice", "begins one later")
    yield _new(kind, "reshape", "column-major")
    yield _new(kind, "permute", "not moved")
    yield _new(kind, "tile", "repeats elements")
    yield _new(kind, "gather", "indices from 1")
    yield _new(kind, "index_select", "indices from 1")
    yield _new(kind, "concat", "swaps operands")
    yield _new(kind, "where", "takes the first operand alone")
    for op in ("flip", "broadcast_to", "embedding"):
        yield _of_any(kind, op, "tail of a vector", kernels.tail_of_8_wrong)


def _of_exact() -> Iterator[Variant]:
    kind = "exact"
    yield _known(kind, "lt-is-le", generator=_FEW_INTEGERS)
    yield _known(kind, "ge-is-not-lt", generator=_SPECIAL)
    yield _known(kind, "maximum-drops-nan", generator=_SPECIAL)
    yield _known(kind, "relu-drops-nan", generator=_SPECIAL)
    yield _known(kind, "relu-ends-at-6", generator=_LARGE)
    yield _known(kind, "floor-truncates")
    yield _known(kind, "ceil-adds-1", generator=_FEW_INTEGERS)
    yield _known(kind, "clip-ignores-max")
    yield _known(kind, "clip-ignores-min")
    yield _known(kind, "argmax-takes-the-last", generator=_FEW_INTEGERS)
    yield _known(kind, "any-overlooks-nan", generator={"fill": "full", "value": "nan"})
    yield _known(kind, "cast-truncates-to-bfloat16")
    yield _new(kind, "lt", "of operands in 16 bits", generator=_FAR_FROM_0)
    yield _new(kind, "floor", "rounds to nearest")
    yield _new(kind, "trunc", "floors")
    yield _new(kind, "fmod", "has the sign of the divisor")
    yield _new(kind, "sign", "without 0", generator=_FEW_INTEGERS)
    yield _new(kind, "minimum", "is the maximum")
    yield _new(kind, "clip", "ends in 16 bits")
    yield _new(kind, "argmin", "takes the last", generator=_FEW_INTEGERS)
    yield _new(kind, "max", "index from 1")
    yield _new(kind, "amax", "drops the last", generator="arange")
    yield _new(kind, "max_pool2d", "windows begin one later")
    yield _new(kind, "all", "looks at the first", generator=_FEW_INTEGERS)
    yield _new(kind, "logical_and", "is or", generator=_FEW_INTEGERS)
    yield _new(kind, "cast", "truncates")
    yield _new(kind, "cast", "to integers rounds")
    for op in ("relu", "amax", "max_pool2d"):
        yield _of_any(kind, op, _BIT, kernels.one_bit)


def _of_ulp() -> Iterator[Variant]:
    kind = "ulp"
    for op in ("add", "mul", "exp", "silu", "gelu"):
        yield _generic(kind, op, "16-bit results truncated")
    for op in ("div", "log", "tanh", "erf"):
        yield _generic(kind, op, "float32 results 2^-18 too large")
        yield _of_any(kind, op, "one element half too large", kernels.one_half_too_large)
    yield _known(kind, "sub-swaps-operands")
    yield _known(kind, "div-by-rounded-reciprocal", attributes={"rounding_mode": None})
    yield _known(kind, "div-is-approximate", attributes={"rounding_mode": None}, below=_IN_16_BITS)
    yield _known(kind, "pow-by-exp-and-log", generator=_SPECIAL)
    yield _known(kind, "exp-in-16-bits")
    yield _known(kind, "exp-overflows-early", generator={"fill": "full", "value": 86.0})
    yield _known(kind, "log1p-as-log-of-a-sum", generator=_NEAR_0)
    yield _known(kind, "expm1-as-exp-minus-1", generator=_NEAR_0)
    yield _known(kind, "sin-reduces-in-float32", generator=_LARGE)
    yield _known(kind, "rsqrt-with-one-step")
    yield _known(kind, "erf-of-a-handbook", generator=_NEAR_0)
    yield _known(kind, "gelu-is-always-tanh", attributes={"approximate": "none"}, below=_IN_16_BITS)
    yield _known(kind, "hardswish-without-upper-end", generator=_LARGE)
    yield _known(kind, "swiglu-swaps-gate-and-up")
    yield _known(kind, "sigmoid-overflows", generator={"fill": "full", "value": 90.0})
    yield _new(kind, "exp", "of a 16-bit argument")
    yield _new(kind, "exp", "fast")
    yield _new(kind, "log", "of 11 bits")
    yield _new(kind, "reciprocal", "one Newton step from 8 bits")
    yield _new(kind, "sigmoid", "hard")
    yield _new(kind, "gelu", "by a sigmoid")
    yield _new(kind, "softplus", "without log1p", generator=_LARGE)
    yield _new(kind, "elu", "without expm1", generator=_NEAR_0)
    yield _new(kind, "silu", "with the sigmoid in 16 bits")
    yield _new(kind, "tanh", "by a quotient of exponentials", generator=_NEAR_0)
    yield _new(kind, "mul", "of operands of 8 bits")


def _of_accumulate() -> Iterator[Variant]:
    kind = "accumulate"
    for op in ("matmul", "sum", "conv1d", "dot"):
        yield _generic(kind, op, "16-bit results truncated", below=_FEW_LONG_SUMS)
        yield _of_any(kind, op, "one element half too large", kernels.one_half_too_large)
    yield _known(kind, "sum-accumulates-in-16-bits", most=4096)
    yield _known(kind, "mean-divides-by-one-less", below=_ONE_PART)
    yield _known(kind, "cumsum-leaves-itself-out")
    yield _known(kind, "dot-drops-the-last", below=_ONE_OF_MANY)
    yield _known(kind, "matmul-cuts-operands")
    yield _known(kind, "matmul-accumulates-in-16-bits", most=4096)
    yield _known(kind, "matmul-drops-the-tail-of-k")
    yield _known(kind, "bmm-takes-the-first-of-the-batch")
    yield _known(kind, "conv2d-flips-the-kernel")
    yield _known(kind, "conv1d-drops-the-last-tap")
    yield _known(kind, "scatter-add-overwrites")
    yield _known(kind, "rope-ignores-interleaved")
    yield _known(kind, "gemm-ignores-beta", below=_ADDEND)
    yield _known(kind, "linear-forgets-bias", below=_ADDEND)
    yield _new(kind, "matmul", "one product dropped", below=_ONE_OF_MANY)
    yield _new(kind, "matmul", "one product twice", below=_ONE_OF_MANY)
    yield _new(kind, "matmul", "split sums in 16 bits", below=_IN_16_BITS)
    yield _new(kind, "bmm", "operands of 8 bits")
    yield _new(kind, "linear", "bias twice", below=_ADDEND)
    yield _new(kind, "gemm", "alpha for beta", below=_ADDEND)
    yield _new(kind, "einsum", "second operand by rows")
    yield _new(kind, "mean", "the last is left out", below=_ONE_OF_MANY)
    yield _new(kind, "cumsum", "begins anew every 1,024")
    yield _new(kind, "cumsum", "in 16 bits", most=4096)
    yield _new(kind, "avg_pool2d", "divides by one less", below=_ONE_PART)
    yield _new(kind, "conv1d", "groups of channels forgotten")


def _of_composed() -> Iterator[Variant]:
    kind = "composed"
    for op in ("softmax", "layer_norm", "scaled_dot_product_attention"):
        below = _WEIGHTS if op == "scaled_dot_product_attention" else ""
        yield _generic(kind, op, "16-bit results truncated", below=below)
        yield _of_any(kind, op, "one element half too large", kernels.one_half_too_large)
    yield _known(kind, "softmax-without-shift", generator={"fill": "uniform", "low": 84.0, "high": 92.0})
    yield _known(kind, "softmax-with-terms-in-16-bits")
    yield _known(kind, "layer-norm-without-eps", generator=_NEAR_0)
    yield _known(kind, "layer-norm-in-one-pass", generator=_FAR_OFF, below=_MEAN)
    yield _known(kind, "layer-norm-without-centre", generator=_FAR_FROM_0)
    yield _known(kind, "log-softmax-as-log-of-softmax", generator=_LARGE)
    yield _known(kind, "logsumexp-without-shift", generator=_FAR_FROM_0)
    yield _known(kind, "var-as-mean-of-squares", generator=_FAR_FROM_0, below=_MEAN)
    yield _known(kind, "norm-ignores-p")
    yield _known(kind, "prod-drops-the-last")
    yield _new(kind, "softmax", "sum in 16 bits", most=4096)
    yield _new(kind, "softmax", "over all")
    yield _new(kind, "log_softmax", "one key left out", below=_ONE_OF_MANY)
    yield _new(kind, "causal_softmax", "one key too many", below=_ONE_OF_MANY)
    yield _new(kind, "logsumexp", "without the maximum")
    yield _new(kind, "var", "divides by n", below=_ONE_PART)
    yield _new(kind, "layer_norm", "eps × 10", generator=_NEAR_0)
    yield _new(kind, "layer_norm", "divides by n - 1", below=_ONE_PART)
    yield _new(kind, "rms_norm", "subtracts the mean")
    yield _new(kind, "group_norm", "one group")
    yield _new(kind, "batch_norm", "running statistics in training")
    yield _new(kind, "batch_norm", "eps outside of the root", below=_IN_16_BITS)
    yield _new(kind, "scaled_dot_product_attention", "scaled by 1 / d")
    yield _new(kind, "scaled_dot_product_attention", "weights of 8 bits", below=_WEIGHTS)
    yield _new(kind, "scaled_dot_product_attention", "last key not seen", below=_ONE_OF_MANY)
    yield _new(kind, "norm", "without the root")
    yield _new(kind, "prod", "starts from the second")


def _of_alternatives() -> Iterator[Variant]:
    kind = "alternatives"
    yield _new(kind, "floor_divide", "truncates")
    yield _new(kind, "floor_divide", "rounds to nearest")
    yield _new(kind, "div", "floor is a ceiling")
    yield _new(kind, "div", "floor is exact")
    yield _new(kind, "remainder", "has the sign of C")
    yield _new(kind, "remainder", "a divisor too much")
    yield _new(kind, "round", "half away from 0", generator={"fill": "arange", "start": -8.5})
    yield _new(kind, "round", "decimals truncated")
    yield _known(kind, "round-ignores-decimals")
    yield _new(kind, "topk", "a smaller one for the last", below=_TIED)
    yield _new(kind, "topk", "indices from 1")
    yield _new(kind, "topk", "each half for itself")
    yield _new(kind, "sort", "two neighbours exchanged", below=_TIED)
    yield _new(kind, "sort", "values of another row")
    yield _new(kind, "sort", "tiles not merged")
    yield _new(kind, "quantize", "truncates")
    yield _new(
        kind, "quantize", "half away from 0", generator={"input": {"fill": "arange", "start": -100.5}, "scale": "ones"}
    )
    yield _new(kind, "quantize", "zero point ignored")
    yield _new(kind, "quantize", "zero point subtracted")
    yield _new(kind, "quantize", "wraps", generator={"input": {"fill": "randn", "std": 60.0}, "scale": "ones"})
    yield _new(kind, "quantize", "ends at ±127", generator={"input": {"fill": "randn", "std": 60.0}, "scale": "ones"})


# asking


@dataclass(slots=True, kw_only=True)
class Tally:
    """Of one variant, by dtype: how often it was asked and how often rejected; and the first answers that passed."""

    variant: Variant
    asked: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Asked, and rejected always, or with a reason why not."""
        return bool(self.asked) and (self.rejected == self.asked or bool(self.variant.below))


def variants() -> list[Variant]:
    """The table, in the order of the classes."""
    bootstrap()
    return list(_variants())


def tally(index: int, seeds: int, widths: Sequence[int]) -> Tally:
    """Ask one variant of the table, in this process."""
    variant = variants()[index]
    found = Tally(variant=dataclasses.replace(variant, change=_forgotten))
    fault = Fault(variant.name, variant.op, variant.change)
    driver = Faulty("wrong", fault)
    for dtype in DTYPES:
        for width in widths:
            if width > variant.most:
                continue
            for case in _cases(variant, dtype, width):
                for seed in range(seeds):
                    _ask(dataclasses.replace(case, seed=seed), driver, dtype, found)
    return found


def _forgotten(_: Call) -> None:
    """In place of a variant's kernel, which does not leave its process."""


def _cases(variant: Variant, dtype: str, width: int) -> list[TestCase]:
    return cases_of_width(
        operators.get(variant.op),
        dtype,
        width,
        BackendTarget(name="numpy", device="cpu"),
        attributes=variant.attributes,
        generator=variant.generator,
    )


def _ask(case: TestCase, driver: Faulty, dtype: str, found: Tally) -> None:
    inputs, _ = make_inputs(case)
    right = NumpyBackend().run(case, inputs)
    wrong = driver.run(case, inputs)
    if not any(_differ(one, other) for one, other in zip(wrong, right, strict=True)):
        return
    expected, _ = expected_outputs([case], inputs, None, NumpyBackend())
    verdict = judge(case, wrong, expected, numerics=_NUMERICS, inputs=inputs)
    found.asked[dtype] += 1
    if verdict.status is not Status.PASSED:
        found.rejected[dtype] += 1
    elif len(found.missed) < 3:
        found.missed.append(f"{case.identifier()} {case.inputs[0].fill.kind} seed {case.seed}")


def _differ(one: Array, other: Array) -> bool:
    """In any bit, where not both are NaN."""
    if one.shape != other.shape:
        return True
    with np.errstate(all="ignore"):
        same = (np.asarray(one) == np.asarray(other)) & (np.signbit(one) == np.signbit(other))
        return not bool(np.all(same | ((one != one) & (other != other))))


def tallies(chosen: Sequence[int], seeds: int, widths: Sequence[int], jobs: int) -> Iterator[Tally]:
    """The tallies of these variants of the table, in order."""
    if jobs == 1:
        yield from (tally(index, seeds, widths) for index in chosen)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(tally, index, seeds, widths) for index in chosen]
        yield from (each.result() for each in waiting)


# the table


def table(found: Sequence[Tally]) -> str:
    lines = [
        f"| class | operator | wrong variant | {' | '.join(DTYPES)} | rejected | why not all |",
        "|---|---|---|" + "---|" * (len(DTYPES) + 2),
    ]
    for each in found:
        cells = [f"{each.rejected[dtype]:,}/{each.asked[dtype]:,}" if each.asked[dtype] else "" for dtype in DTYPES]
        asked, rejected = sum(each.asked.values()), sum(each.rejected.values())
        share = "never asked" if not asked else "100 %" if rejected == asked else f"{rejected / asked:.1%}"
        why = each.variant.below if rejected < asked else ""
        variant = each.variant
        lines.append(f"| {variant.kind} | {variant.op} | {variant.name} | {' | '.join(cells)} | {share} | {why} |")
    return "\n".join(lines)


def summary(found: Sequence[Tally], seconds: float) -> str:
    answers = sum(sum(each.asked.values()) for each in found)
    lines = [
        f"{answers:,} wrong answers of {len(found)} variants in {seconds:.0f} s.",
        "",
        "| class | variants | operators | asked | rejected | variants always rejected |",
        "|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(each.variant.kind for each in found):
        these = [each for each in found if each.variant.kind == kind]
        asked = sum(sum(each.asked.values()) for each in these)
        rejected = sum(sum(each.rejected.values()) for each in these)
        chosen = len({each.variant.op for each in these})
        always = sum(each.asked == each.rejected for each in these)
        lines.append(
            f"| {kind} | {len(these)} | {chosen} | {asked:,} | {rejected:,} ({rejected / asked:.2%}) | {always} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--class", dest="kinds", action="append", choices=CLASSES, help="this class. Repeatable.")
    parser.add_argument("--op", action="append", help="this operator. Repeatable.")
    parser.add_argument("--width", action="append", type=int, help="this width. Repeatable.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="name answers that were not rejected")
    given = parser.parse_args()
    everything = variants()
    chosen = [
        index
        for index, each in enumerate(everything)
        if (not given.kinds or each.kind in given.kinds) and (not given.op or each.op in given.op)
    ]
    began = time.perf_counter()
    found: list[Tally] = []
    for each in tallies(chosen, given.seeds, given.width or WIDTHS, given.jobs):
        found.append(each)
        if given.verbose and each.missed:
            print(f"{each.variant.op} {each.variant.name} passed: {'; '.join(each.missed)}", file=sys.stderr)
    print(summary(found, time.perf_counter() - began), table(found), sep="\n\n")
    unsound = [each for each in found if not each.is_sound]
    for each in unsound:
        print(f"\nnot always rejected, or never asked: {each.variant.op} {each.variant.name}: {each.missed}")
    return 1 if unsound else 0


if __name__ == "__main__":
    sys.exit(main())
