"""``optest model bench``: time of a model and of its baseline, each combination in a separate process.

That process is ``python -m optest.models.benchmarks REQUEST FILE``: a request in JSON, and the file for the result.
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
from optest.models.dumps import Hooks
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


def bench_command(context: CommandContext, **options: Any) -> int:
    """Time each combination, print a table and the failures; return 0 if all were timed, else 1.

    Raises:
        UsageError: for a request that a child process refuses, such as an unknown backend.
    """
    Hooks(options)  # refuses a folder in use before any work is done
    rows, failed, programs, baselines = [], 0, dict[str, None](), dict[str, float]()
    for number, request in enumerate(_requests(options)):
        label, sizes = request["who"], [str(request[name] or "") for name in _SIZES]
        answer = _timed_in_child({**request, "part": f"{number:02}-{label.replace(':', '-')}"})
        if "refused" in answer:
            raise UsageError(answer["refused"])
        if "failed" in answer:
            failed += 1
            rows.append([label, *sizes, "failed", "", "", ""])
            words = [f"{name} {size}" for name, size in zip(_SIZES, sizes, strict=True) if size]
            for line in (f"failed: {', '.join([label, *words])}", *answer["failed"].splitlines()):
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
    used = [column for column in range(len(_HEAD)) if any(row[column] for row in rows)]
    table = columns([[row[column] for column in used] for row in ([*_HEAD], *rows)], left=frozenset({0}))
    faster = "; × is the speed relative to the baseline" if len(_HEAD) - 1 in used else ""
    caption = f"  median and interquartile range of one call, each row in a fresh process{faster}"
    for line in (*programs, *table, caption):
        context.echo(line)
    here = plural(os.cpu_count() or 1, "processor")
    context.echo(f"{plural(len(rows) - failed, 'timing')}, {failed} failed; {here} here")
    return int(failed > 0)


def _requests(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the request for each child process, for each combination of sizes the baseline first."""
    default, baseline = (
        ("onnxruntime", "onnxruntime:disabled") if is_file(options["what"]) else ("torch", "torch:eager")
    )
    backend = options["backend"] or default
    ours = ":".join([backend, options["variant"] or ("eager" if backend == "torch" else "")]).rstrip(":")
    sides = [ours] if options["no_baseline"] else [options["baseline"] or baseline, ours]
    for sizes in itertools.product(*(options[name] or [0] for name in ("threads", "batch", "bench_tokens"))):
        for label in dict.fromkeys(sides):
            name, _, variant = label.partition(":")
            on = {"who": label, "is_baseline": label != ours, "backend": name, "variant": variant or None}
            yield {**options, **dict(zip(_SIZES, sizes, strict=True)), **on}


def _timed_in_child(request: Mapping[str, Any]) -> dict[str, Any]:
    """Time one request in a child process; return its result, or how the process ended under ``failed``."""
    threads = str(request["threads"])
    variables = {f"{name}_NUM_THREADS": threads for name in _VARIABLES} if request["threads"] else {}
    with TemporaryDirectory() as scratch:
        answer = Path(scratch, "answer.json")
        command = module_command("optest.models.benchmarks", json.dumps(request), str(answer))
        ended = run(command, cwd=".", env=environment() | variables, timeout_s=request["timeout"])
        if answer.exists():
            return dict(json.loads(answer.read_text()))
    how = f"exit status {ended.returncode}" if ended.signal is None else signal_name(ended.signal)
    hint = ", probably by the system, which ran out of memory" if how == "SIGKILL" else ""
    failure = (
        f"no result within {request['timeout']:g} s; see --timeout"
        if ended.timed_out
        else f"the process died: {how}{hint}"
    )
    tail = f"{ended.stdout_tail}\n{ended.stderr_tail}".strip().splitlines()[-_TAIL_LINES:]
    return {"failed": "\n".join([failure, *tail])}


def _main(request: Mapping[str, Any], path: Path) -> None:
    """Time one request and write the result, or the reason under ``failed`` or ``refused``, to a file."""
    faulthandler.enable()
    try:
        model = runnable(request, **{name: request[name] for name in _SIZES})
        # A call returns NumPy arrays, so that all outputs are computed when it ends.
        with Border("the backend", Reason.RAISED):
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
