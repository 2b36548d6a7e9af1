"""``optest model bench``: time of a model and of its baseline, each combination in a process of its own.

That process is ``python -m optest.models.benchmarks REQUEST FILE``: JSON, and where the answer goes.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from optest.core.border import Border
from optest.errors import OptestError, UsageError, plural
from optest.guests import CommandContext
from optest.models.hooks import Hooks
from optest.models.opened import is_file, runnable
from optest.process import module_command, run, signal_name
from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns
from optest.settings import environment
from optest.spec import Fault, Reason
from optest.store import write_atomically
from optest.timing import Subject, measure

_VARIABLES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB", "BLIS", "RAYON")
_TAIL_LINES = 20
_SIZES = ("threads", "batch", "tokens")
_HEAD = ("on", *_SIZES, "latency", "±", "throughput", "×")


def bench_command(context: CommandContext, **given: Any) -> int:
    """Time each combination, and say which could not be timed.

    Returns:
        0 if all were, else 1.

    Raises:
        UsageError: for what no combination can do.
    """
    Hooks(given)  # says before the work if the folder is in use
    rows, failed, programs, baselines = [], 0, dict[str, None](), dict[str, float]()
    for number, request in enumerate(_requests(given)):
        who, sizes = request["who"], [str(request[name] or "") for name in _SIZES]
        answer = _answer_of({**request, "part": f"{number:02}-{who.replace(':', '-')}"})
        if "refused" in answer:
            raise UsageError(answer["refused"])
        if "failed" in answer:
            failed += 1
            rows.append([who, *sizes, "failed", "", "", ""])
            words = [f"{name} {size}" for name, size in zip(_SIZES, sizes, strict=True) if size]
            for line in (f"failed: {', '.join([who, *words])}", *answer["failed"].splitlines()):
                context.echo(line, err=True)
            continue
        for line in answer["lines"]:
            context.echo(line)
        programs[f"{answer['on']}: {answer['program']}"] = None
        median_s, spread_s = answer["time"]["median_s"], answer["time"]["spread_s"]
        if request["is_baseline"]:
            baselines[str(sizes)] = median_s
        faster = f"{baselines[str(sizes)] / median_s:.3g}" if str(sizes) in baselines else ""
        rate = answer["batch"][0] * (request["tokens"] or 1) / median_s
        throughput = f"{rate:{',.0f' if rate >= 100 else '.3g'}} {'tokens' if request['tokens'] else 'items'}/s"
        spread = "" if spread_s is None else seconds_text(spread_s)
        rows.append([answer["on"], *sizes, seconds_text(median_s), spread, throughput, faster])
    used = [place for place in range(len(_HEAD)) if any(row[place] for row in rows)]
    table = columns([[row[place] for place in used] for row in ([*_HEAD], *rows)], left=frozenset({0}))
    faster = "; × is how many times as fast as the baseline" if len(_HEAD) - 1 in used else ""
    caption = f"  median and interquartile range of one call, each row in a fresh process{faster}"
    for line in (*programs, *table, caption):
        context.echo(line)
    here = plural(os.cpu_count() or 1, "processor")
    context.echo(f"{plural(len(rows) - failed, 'timing')}, {failed} failed; {here} here")
    return int(failed > 0)


def _requests(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What each child is to do, and on whom; of each combination the baseline comes first."""
    own, baseline = ("onnxruntime", "onnxruntime:disabled") if is_file(given["what"]) else ("torch", "torch:eager")
    backend = given["backend"] or own
    ours = ":".join([backend, given["variant"] or ("eager" if backend == "torch" else "")]).rstrip(":")
    sides = [ours] if given["no_baseline"] else [given["baseline"] or baseline, ours]
    for sizes in itertools.product(*(given[name] or [0] for name in ("threads", "batch", "bench_tokens"))):
        for who in dict.fromkeys(sides):
            name, _, variant = who.partition(":")
            on = {"who": who, "is_baseline": who != ours, "backend": name, "variant": variant or None}
            yield {**given, **dict(zip(_SIZES, sizes, strict=True)), **on}


def _answer_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a child answers, or how it ended, under ``failed``."""
    threads = str(request["threads"])
    variables = {f"{name}_NUM_THREADS": threads for name in _VARIABLES} if request["threads"] else {}
    with TemporaryDirectory() as scratch:
        answer = Path(scratch, "answer.json")
        command = module_command("optest.models.benchmarks", json.dumps(request), str(answer))
        ended = run(command, cwd=".", env=environment() | variables, timeout_s=request["timeout"])
        if answer.exists():
            return dict(json.loads(answer.read_text()))
    how = f"exit status {ended.returncode}" if ended.signal is None else signal_name(ended.signal)
    hint = ", as the system does where memory runs out" if how == "SIGKILL" else ""
    what = f"no answer in {request['timeout']:g} s" if ended.timed_out else f"the process died: {how}{hint}"
    tail = f"{ended.stdout_tail}\n{ended.stderr_tail}".strip().splitlines()[-_TAIL_LINES:]
    return {"failed": "\n".join([what, *tail])}


def _main(request: Mapping[str, Any], path: Path) -> None:
    faulthandler.enable()
    try:
        model = runnable(request, **{name: request[name] for name in _SIZES})
        with Border("the backend", Reason.RAISED):  # a call ends with arrays of this process: all of them are computed
            call = Subject(who=model.backend, call=lambda: model.program.outputs(model.feeds))
            (samples,) = measure([call], target_s=request["bench_time"])
        answer: dict[str, Any] = {
            "time": asdict(samples.call_time()),
            "on": model.backend,
            "program": str(model.program),
            "batch": next(iter(model.feeds.values())).shape[:1] or [1],
            "lines": [*model.notes, *Hooks(request, request["part"]).all_lines(model.program, model.feeds)],
        }
    except Fault as fault:
        answer = {"failed": f"{fault.reason.value}: {fault.message}"}
    except OptestError as error:
        answer = {"refused": str(error)}
    write_atomically(path, json.dumps(answer).encode())


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), Path(sys.argv[2]))
