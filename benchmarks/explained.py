"""Do failures explain themselves? One fault at a time, and whether the failure blocks name its kind or its cause.

    python benchmarks/explained.py [--corpus catalogue|functions] [WORD ...]

- ``catalogue``: faults of the registry and faults that every operator can have, in the cases of a check. One of the
  first three failure blocks has to name the kind of the fault.
- ``functions``: the torch kernels of ``tests/plugins/wrong_kernels/causes.py``, checked by ``optest check --function``.
  The first block has to name the cause, and kernels without such a fault must not get a cause.

Every fault has a pattern of the words that name it. They count only in the lines about the result, not in those about
the call, the rule, or the reproduction command. Words limit the run to faults whose name has one of them. Exits with 1
if fewer than 80 % of a corpus are named, or if a cause is invented.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence

import kit
from wrong_kernels import FAULTS, Fault, Faulty
from wrong_kernels.any_operator import faults_of

from optest.api import bootstrap
from optest.api.checking import check, sample_cases
from optest.core.results import result_of
from optest.core.runner import execute, why_not_run
from optest.operators import operators
from optest.reporting.failure_groups import failure_groups, group_lines
from optest.spec import CaseResult

__all__ = ["first_block"]

LEAST = 0.8
_HEAD = re.compile(r"^(?:FAILED|CRASHED|ERROR|TIMEOUT|SUSPECT)\b")
_OF_THE_CALL = re.compile(r"^  (?:rule|again|case|description|definition|operands there|input\d+|and \d+ more)\b")


def explained_in_catalogue(words: Sequence[str]) -> bool:
    """Print which faults of the catalogue are explained, and return whether they are enough."""
    outcomes: Counter[str] = Counter()
    for fault, pattern in _corpus():
        if words and not any(word in fault.name for word in words):
            continue
        blocks = [group_lines(group) for group in failure_groups(_results_of(fault))]
        is_named = any(_names(pattern, block[1:]) for block in blocks[:3])
        outcome = "explained" if is_named else "not explained" if blocks else "not found"
        outcomes[outcome] += 1
        print(f"{outcome:14} {fault.name} ({pattern}): {len(blocks)} groups", flush=True)
        if not is_named or words:
            _print_blocks(blocks[:3])
    return _is_enough(outcomes["explained"], outcomes.total(), "explained in the catalogue")


def _results_of(fault: Fault) -> list[CaseResult]:
    """Run the cases of a check of the fault's operator."""
    driver = Faulty("planted", fault)
    return [
        result_of(case, execute([case], driver).verdicts[0])
        for case in sample_cases(fault.op)
        if case.expects_error is None and why_not_run(case, driver) is None
    ]


def _corpus() -> Iterator[tuple[Fault, str]]:
    for name, pattern in _ORDINARY.items():
        yield FAULTS[name], pattern
    for op, kinds in _GENERIC.items():
        known = {fault.name: fault for fault in faults_of(operators.get(op))}
        yield from ((known[f"{op}: {kind}"], pattern) for kind, pattern in kinds.items())


def explained_functions(words: Sequence[str]) -> bool:
    """Print which causes of torch kernels the first block names, and return whether they are enough."""
    import torch
    from wrong_kernels import causes

    torch.set_num_threads(1)
    outcomes: Counter[str] = Counter()
    of_hypothesis: dict[str, Counter[bool]] = {}
    for name, planted in causes.importable():
        if words and not any(word in name or word in planted.name for word in words):
            continue
        block = first_block(planted.operator, name)
        diagnosis = next((line.strip() for line in block if line.startswith("  diagnosis:")), "")
        # Which cases fail is no explanation of the result.
        lines = [line for line in block[1:] if not line.startswith("  fails")]
        is_named = bool(planted.words) and _names(planted.words, lines)
        if planted.hypothesis:
            outcome = "named" if is_named else "misnamed" if diagnosis else "silent" if block else "not found"
            of_hypothesis.setdefault(planted.hypothesis, Counter())[is_named] += 1
        else:
            outcome = "invented" if diagnosis and not is_named else "without a fault"
        outcomes[outcome] += 1
        print(f"{outcome:14} {planted.hypothesis or 'none'}, {planted.name}: {diagnosis}", flush=True)
        if outcome in ("misnamed", "silent", "invented") or words:
            _print_blocks([block])
    rows = [(hypothesis, counts.total(), counts[True]) for hypothesis, counts in of_hypothesis.items()]
    print(kit.table(("cause", "kernels", "named"), rows))
    print(f"{outcomes['misnamed']} misnamed, {outcomes['invented']} causes invented")
    faults = outcomes.total() - outcomes["without a fault"] - outcomes["invented"]
    return _is_enough(outcomes["named"], faults, "named by the first block") and not outcomes["invented"]


def first_block(operator: str, name: str) -> list[str]:
    """Return the lines of the first failure block of a check of one kernel; none if no case fails."""
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        options = {"function": [f"{operator}=wrong_kernels.causes:{name}"], "op": [operator], "backend": "function"}
        check({**options, "isolate": "none", "runs_dir": folder, "no_color": True}, stream=out)
    lines = out.getvalue().split("\n")
    begin = next((index for index, line in enumerate(lines) if _HEAD.match(line)), None)
    if begin is None:
        return []
    end = next((index for index in range(begin + 1, len(lines)) if not lines[index].startswith("  ")), len(lines))
    return lines[begin:end]


def _names(pattern: str, lines: Sequence[str]) -> bool:
    return bool(re.search(pattern, "\n".join(line for line in lines if not _OF_THE_CALL.match(line))))


def _print_blocks(blocks: Sequence[Sequence[str]]) -> None:
    print("\n".join(f"    {line}" for block in blocks for line in block))


def _is_enough(named: int, total: int, text: str) -> bool:
    print(f"\n{named} of {total} {text} ({named / max(1, total):.0%})\n", flush=True)
    return named >= LEAST * total


def main() -> int:
    parser = kit.parser(__doc__)
    parser.add_argument("--corpus", choices=("catalogue", "functions"), help="only this corpus")
    parser.add_argument("words", nargs="*", help="only faults whose name has one of these words")
    options = parser.parse_args()
    bootstrap()
    is_enough = True
    if options.corpus != "functions":
        is_enough &= explained_in_catalogue(options.words)
    if options.corpus != "catalogue":
        is_enough &= explained_functions(options.words)
    return 0 if is_enough else 1


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


if __name__ == "__main__":
    sys.exit(main())
