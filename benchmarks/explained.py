"""Which failures explain themselves? Planted faults, one at a time, and whether the failure blocks name their kind.

    python benchmarks/explained.py [WORD ...]

Every fault states a pattern of the words that name its kind. They count in what a failure block says of the answer,
and neither in the call, the rule, the layouts nor in the line that runs it again. Words limit the run to faults whose
name has one. Exit status 1 if fewer than 80 % are explained.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

import numpy as np
from wrong_kernels import FAULTS, Call, Change, Fault, Faulty
from wrong_kernels.any_operator import faults_of
from wrong_kernels.changes import single, wide
from wrong_kernels.registry import Array

from optest.api import bootstrap
from optest.api.checking import sample_cases
from optest.core.results import result_of
from optest.core.runner import execute, why_not_run
from optest.operators import operators
from optest.reporting.failure_groups import failure_groups, group_lines
from optest.spec import CaseResult

LEAST = 0.8
_OF_THE_CALL = re.compile(r"^  (?:rule|again|case|description|definition|operands there|input\d+|and \d+ more)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault, and the words that have to be said of it."""

    fault: Fault
    words: str


def main(names: list[str]) -> int:
    bootstrap()
    chosen = [each for each in corpus() if not names or any(name in each.fault.name for name in names)]
    began, explained = time.monotonic(), 0
    for planted in chosen:
        results = results_of(planted.fault)
        groups = failure_groups(results)
        texts = ["\n".join(line for line in group_lines(group)[1:] if not _OF_THE_CALL.match(line)) for group in groups]
        said = any(re.search(planted.words, text) for text in texts[:3])
        explained += said
        word = "explained" if said else "not explained" if groups else "NOT FOUND"
        print(f"{word:14} {planted.fault.name} ({planted.words}): {len(groups)} groups", flush=True)
        for group in groups[:3] if not said or names else []:
            print("\n".join(f"    {line}" for line in group_lines(group)))
    share = explained / max(1, len(chosen))
    print(f"\n{explained} of {len(chosen)} explained ({share:.0%}) in {time.monotonic() - began:.0f} s")
    return 0 if share >= LEAST else 1


def results_of(fault: Fault) -> list[CaseResult]:
    """What ``check`` makes of the fault's operator."""
    driver = Faulty("planted", fault)
    results = []
    for case in sample_cases(fault.op):
        if case.expects_error is None and why_not_run(case, driver) is None:
            verdict = execute([case], driver).verdicts[0]
            results.append(result_of(case, verdict))
    return results


def corpus() -> Iterator[Planted]:
    for name, words in _ORDINARY.items():
        yield Planted(fault=FAULTS[name], words=words)
    for op, kinds in _GENERIC.items():
        found = {each.name.partition(": ")[2]: each for each in faults_of(operators.get(op))}
        for kind, words in kinds.items():
            yield Planted(fault=found[kind], words=words)
    for op, name, words, change in _OWN:
        yield Planted(fault=Fault(f"{op}: {name}", op, change), words=words)


_ORDINARY = {
    "add-reads-dense": "dense",
    "sum-reads-dense": "dense",
    "sub-swaps-operands": "exchanged|ratio is -1",
    "mul-integers-through-float32": "float32",
    "exp-in-16-bits": "float16",
    "erf-of-a-handbook": "approximat",
    "mean-divides-by-one-less": "ratio",
    "cumsum-leaves-itself-out": "exclusive",
    "softmax-over-the-last-always": r"\bdim\b",
    "layer-norm-without-eps": r"\beps\b",
    "gelu-is-always-tanh": "approximate",
    "linear-forgets-bias": "bias",
    "roll-the-other-way": "shifts",
    "flip-the-first-of-several": "dims",
    "matmul-cuts-operands": "tf32|10 bits|float16",
    "concat-swaps-the-last-two": "exchanged",
    "conv2d-flips-the-kernel": "flipped",
    "bmm-takes-the-first-of-the-batch": "first",
    "silu-truncates": "nearer to zero|truncat",
    "argmax-takes-the-last": "last",
    "cast-truncates-to-bfloat16": "nearer to zero|truncat",
    "swiglu-swaps-gate-and-up": "exchanged",
    "where-swaps-branches": "exchanged",
    "max-pool-pads-with-0": "padding|zero",
    "sum-accumulates-in-16-bits": "float16|bfloat16",
    "matmul-drops-the-tail-of-k": r"multiple|inner|k ",
    "gemm-multiplies-c-by-0": r"NaN|nan",
}

_GENERIC = {
    "relu": {"input 0 read as dense": "dense", "offset of input 0 ignored": "offset", "wrong in bfloat16": "bfloat16"},
    "exp": {
        "float64 computed in float32": "float32",
        "float32 results of 11 bits": "tf32|float16|10 bits",
        "float32 results 2^-18 too large": "ratio",
        "wrong from 4 dimensions on": "dimensions",
        "wrong for last sizes that are no multiple of 4": "multiple of 4",
        "wrong in 16 bits where not dense": "strided",
    },
    "mul": {"rows of input 1 taken as adjacent": "row", "wrong beyond 65,536 elements": "more than"},
    "matmul": {"input 1 read as dense": "dense"},
    "tanh": {"wrong for scalars": "scalar", "wrong for last sizes that are multiples of 16": "multiple of 16"},
    "add": {"alpha ignored": "alpha"},
    "leaky_relu": {"negative_slope ignored": "negative_slope"},
    "gemm": {
        "alpha ignored": "alpha",
        "beta ignored": "beta",
        "trans_b ignored": "trans_b",
        "c ignored": r"\bc\b|\bbeta\b",
    },
    "var": {"correction ignored": "correction"},
    "conv2d": {"padding ignored": "padding", "groups ignored": "groups|RAISED"},
    "scaled_dot_product_attention": {"scale ignored": "scale", "is_causal ignored": "is_causal"},
    "group_norm": {"eps ignored": r"\beps\b"},
    "topk": {"largest ignored": "largest"},
    "sort": {"descending ignored": "descending"},
    "amax": {"keepdim ignored": "keepdim"},
    "tril": {"diagonal ignored": "diagonal"},
    "avg_pool2d": {"count_include_pad ignored": "count_include_pad"},
}


def _times(factor: float) -> Change:
    return lambda call: wide(call.right[0]) * factor if call.is_float else None


def _attribute(name: str, value: Any) -> Change:
    """Another value of an attribute wherever the call has not that one."""
    return lambda call: None if call.attribute(name) == value else call.with_attributes(**{name: value})


def _first_rounded(dtype: Any) -> Change:
    def change(call: Call) -> Sequence[Array]:
        return call.with_inputs(single(call.inputs[0]).astype(dtype).astype(call.inputs[0].dtype), *call.inputs[1:])

    return lambda call: change(call) if call.inputs[0].dtype == np.float32 else None


def _without_division(call: Call) -> Array:
    reduced = call.inputs[0].size / max(1, call.right[0].size)
    return wide(call.right[0]) * reduced


def _transposed(call: Call) -> Sequence[Array] | None:
    other = call.inputs[1]
    if other.ndim != 2:
        return None
    return call.with_inputs(call.inputs[0], np.ascontiguousarray(other).reshape(other.shape[::-1]).T)


def _racing() -> Change:
    calls = count()

    def change(call: Call) -> Array | None:
        out = np.array(call.right[0], order="C")
        if not call.is_float or out.size < 64:
            return None
        flat = out.reshape(-1)
        flat[(next(calls) * 7) % flat.size] = 3
        return out

    return change


def _one_based(call: Call) -> Array:
    return np.asarray(call.right[0]) + 1


def _without_scale(call: Call) -> Sequence[Array]:
    return call.with_attributes(scale=1.0)


def _of_rank_1(call: Call) -> Array | None:
    return np.atleast_1d(call.right[0]) if np.ndim(call.right[0]) == 0 else None


def _log_of(base: float) -> Callable[[Call], Array | None]:
    return lambda call: wide(call.right[0]) / np.log(base) if call.is_float else None


def _with_ones(place: int) -> Change:
    """An input is not looked at, as if it were all ones."""

    def change(call: Call) -> Sequence[Array] | None:
        if place >= len(call.inputs):
            return None
        inputs = list(call.inputs)
        inputs[place] = np.ones_like(inputs[place])
        return call.with_inputs(*inputs)

    return change


_OWN: tuple[tuple[str, str, str, Change], ...] = (
    ("mean", "sum is not divided", "ratio", _without_division),
    ("softmax", "twice as large", "ratio is 2", _times(2.0)),
    ("avg_pool2d", "9/16 of it", "0.5625|9/16", _times(0.5625)),
    ("log", "base 2", r"1/ln\(2\)", _log_of(2.0)),
    ("log", "base 10", r"1/ln\(10\)", _log_of(10.0)),
    ("scaled_dot_product_attention", "scores are not scaled", "scale", _without_scale),
    ("softmax", "always over the first dim", r"\bdim\b", _attribute("dim", 0)),
    ("cumsum", "always along the first dim", r"\bdim\b", _attribute("dim", 0)),
    ("var", "population variance", "correction", _attribute("correction", 0.0)),
    ("norm", "p is always 1", r"\bp\b", _attribute("p", 1.0)),
    ("matmul", "second operand transposed", "transposed", _transposed),
    ("matmul", "first operand in bfloat16", "bfloat16", _first_rounded("bfloat16")),
    ("conv1d", "first operand in float16", "float16", _first_rounded("float16")),
    ("add", "one element is another in each call", "another answer", _racing()),
    ("argmax", "counts from one", "difference is 1", _one_based),
    ("sum", "a scalar has one dimension", "values are right", _of_rank_1),
    ("neg", "forgets the sign", "ratio is -1", lambda call: np.array(call.inputs[0])),
    ("batch_norm", "eps is 1e-3", r"\beps\b", _attribute("eps", 1e-3)),
    ("rms_norm", "weight ignored", "weight", _with_ones(1)),
    ("elu", "alpha is always 1", "alpha", _attribute("alpha", 1.0)),
    ("clip", "min ignored", r"\bmin\b", _attribute("min", None)),
    ("gather", "dim is always 0", r"\bdim\b", _attribute("dim", 0)),
    ("pad", "value is always 0", r"\bvalue\b", _attribute("value", 0.0)),
    (
        "triu",
        "one diagonal too far",
        "diagonal",
        lambda call: call.with_attributes(diagonal=call.attribute("diagonal") + 1),
    ),
    ("rope", "never interleaved", "interleaved", _attribute("interleaved", False)),
    ("div", "floors always", "rounding_mode", _attribute("rounding_mode", "floor")),
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
