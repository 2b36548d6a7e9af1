"""Does the first failure block name the cause? Torch kernels with one fault each, and what a check prints first.

    python benchmarks/first_blocks.py [WORD ...]

Each kernel of ``tests/plugins/wrong_kernels/causes.py`` is checked by ``optest check --function`` in this process, and
the first block that it prints is compared with the words that were fixed for its cause; they count in what the block
says of the result, and neither in the call, the rule and the `fails:` condition nor in the line that runs it again.
Words limit the run to faults whose name has one. Exit status 1 if fewer than 80 % are named, or if a kernel without
such a fault gets a cause.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

import torch
from wrong_kernels import causes

from optest.api.checking import check

LEAST = 0.8
_HEAD = re.compile(r"^(?:FAILED|CRASHED|ERROR|TIMEOUT|SUSPECT)\b")
_OF_THE_CALL = re.compile(r"^  (?:rule|again|case|description|definition|operands there|fails|input\d+|and \d+ more)\b")


def main(words: list[str]) -> int:
    torch.set_num_threads(1)
    chosen = [
        (name, each)
        for name, each in causes.importable()
        if not words or any(word in name or word in each.name for word in words)
    ]
    began, counts, hypotheses = time.monotonic(), Counter[str](), Counter[str]()
    for name, planted in chosen:
        block = first_block(planted.operator, name)
        said = "\n".join(line for line in block[1:] if not _OF_THE_CALL.match(line))
        diagnosis = next((line.strip() for line in block if line.startswith("  diagnosis:")), "")
        is_named = bool(planted.words and re.search(planted.words, said))
        if planted.hypothesis:
            outcome = "named" if is_named else "misnamed" if diagnosis else "silent" if block else "NOT FOUND"
            hypotheses[planted.hypothesis] += is_named
        else:
            outcome = "invented" if diagnosis and not is_named else "well"
        counts[outcome] += 1
        print(f"| {outcome} | {planted.hypothesis or 'none'} | {planted.name} | {diagnosis} |", flush=True)
        if outcome in ("misnamed", "silent", "invented") or words:
            print("\n".join(f"    {line}" for line in block))
    planted_faults = [each for _, each in chosen if each.hypothesis]
    for hypothesis, count in Counter(each.hypothesis for each in planted_faults).items():
        print(f"{hypotheses[hypothesis]} of {count} named: {hypothesis}")
    share = counts["named"] / max(1, len(planted_faults))
    print(f"\n{counts['named']} of {len(planted_faults)} named ({share:.0%}), {counts['misnamed']} misnamed, "
          f"{counts['invented']} causes invented, in {time.monotonic() - began:.0f} s")  # fmt: skip
    return 0 if share >= LEAST and not counts["invented"] else 1


def first_block(operator: str, name: str) -> list[str]:
    """The lines of the first failure block that a check of one kernel prints; none if it finds nothing."""
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        given = {"function": [f"{operator}=wrong_kernels.causes:{name}"], "op": [operator], "backend": "function"}
        check({**given, "isolate": "none", "runs_dir": folder, "no_color": True}, stream=out)
    lines = out.getvalue().split("\n")
    begin = next((place for place, line in enumerate(lines) if _HEAD.match(line)), None)
    if begin is None:
        return []
    end = next((place for place in range(begin + 1, len(lines)) if not lines[place].startswith("  ")), len(lines))
    return lines[begin:end]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
