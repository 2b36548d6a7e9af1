"""``optest model bench``: time of a model and of its baseline, each combination in a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from optest.errors import UsageError
from optest.guests import CommandContext
from optest.models.hooks import Hooks
from optest.models.opening import is_file
from optest.process import signal_name, start_child
from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns, plural
from optest.settings import environment

__all__ = ["bench_command"]

_VARIABLES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB", "BLIS", "RAYON")
_TAIL_LINES = 8
_END_S = 30.0
_HEAD = ("on", "threads", "batch", "tokens", "latency", "±", "throughput", "×")


def bench_command(context: CommandContext, **given: Any) -> int:
    """Time each combination, and say which could not be timed.

    Returns:
        0 if all were, else 1.

    Raises:
        UsageError: for what no combination can do.
    """
    folder = Path(given["dump_dir"]) if given["dump_dir"] else None
    Hooks(folder)  # says before the work if it is in use
    rows, failures, programs = [], [], dict[str, None]()
    whole: dict[tuple[int, ...], float] = {}
    for number, (who, request) in enumerate(_requests(given)):
        request["trace"] = f"profile-{number:02}.json"
        if folder:
            request["dump_dir"] = str(folder / f"{number:02}-{who.replace(':', '-')}")
        sizes = request["threads"], request["batch"], request["tokens"]
        answer = _answer_of(request, given["timeout"])
        if "refused" in answer:
            raise UsageError(answer["refused"])
        texts = [str(each) if each else "" for each in sizes]
        if "failed" in answer:
            failures.append([f"{who} {_words(sizes)}", *answer["failed"].splitlines()])
            rows.append((who, *texts, "failed", "", "", ""))
            continue
        who = answer["on"]
        programs[f"{who}: {answer['program']}"] = None
        for line in answer["lines"]:
            context.echo(line)
        rows.append(
            (who, *texts, *_cells(answer, request["tokens"], whole.setdefault(sizes, answer["time"]["median_s"])))
        )
    for line in programs:
        context.echo(line)
    used = [place for place in range(len(_HEAD)) if any(row[place] for row in rows)]
    for line in columns([[row[place] for place in used] for row in (_HEAD, *rows)], left=frozenset({0})):
        context.echo(line)
    context.echo(
        "  median and interquartile range of one call, each row in a fresh process; × is the baseline's time by it"
    )
    for failure in failures:
        for line in (f"failed: {failure[0]}", *(f"  {each}" for each in failure[1:])):
            context.echo(line, err=True)
    context.echo(
        f"{plural(len(rows) - len(failures), 'timing')}, {len(failures)} failed; {os.cpu_count()} processors here"
    )
    return int(bool(failures))


def _requests(given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each child is to do, and on whom; of each combination the baseline comes first."""
    ours = given["backend"] or ("onnxruntime" if is_file(given["what"]) else "torch"), given["variant"]
    stated = given["baseline"] or ("onnxruntime:disabled" if is_file(given["what"]) else "torch:eager")
    theirs = stated.partition(":")[0], stated.partition(":")[2] or None
    sides = [ours] if given["no_baseline"] else [theirs, ours]
    lists = (given[name] or [0] for name in ("threads", "batch", "bench_tokens"))
    for threads, batch, tokens in itertools.product(*lists):
        for backend, variant in dict.fromkeys(sides):
            sizes = {"threads": threads, "batch": batch, "tokens": tokens}
            request = {**given, **sizes, "backend": backend, "variant": variant}
            yield f"{backend}:{variant}" if variant else backend, request


def _answer_of(request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """What a child answers, or how it ended, under ``failed``."""
    threads = str(request["threads"])
    variables = {f"{name}_NUM_THREADS": threads for name in _VARIABLES} if request["threads"] else {}
    paths = [entry or os.getcwd() for entry in sys.path]
    with (
        TemporaryDirectory() as scratch,
        start_child(
            [sys.executable, "-m", "optest.models.bench_child"],
            env=environment() | variables,
            stderr_path=Path(scratch, "log"),
        ) as child,
    ):
        try:
            child.send(json.dumps({**request, "import_path": paths}).encode())
            answer = child.receive(timeout_s)
        except TimeoutError:
            child.write_traceback()
            return {"failed": f"no answer in {timeout_s:g} s\n{_tail(child.stderr_tail())}"}
        except BrokenPipeError:
            answer = None
        if answer is not None:
            found: dict[str, Any] = json.loads(answer)
            return found
        status, signal = child.wait(_END_S)
        how = f"exit status {status}" if signal is None else signal_name(signal)
        hint = ", as the system does where memory runs out" if how == "SIGKILL" else ""
        return {"failed": f"the process died: {how}{hint}\n{_tail(child.stderr_tail())}"}


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])


def _cells(answer: Mapping[str, Any], tokens: int, baseline_s: float) -> tuple[str, ...]:
    time, items = answer["time"], answer["batch"] * (tokens or 1)
    median_s, spread_s = time["median_s"], time["spread_s"]
    return (
        seconds_text(median_s),
        "" if spread_s is None else seconds_text(spread_s),
        f"{items / median_s:.4g} {'tokens' if tokens else 'items'}/s",
        f"{baseline_s / median_s:.3g}",
    )


def _words(sizes: tuple[int, ...]) -> str:
    return ", ".join(f"{name} {size}" for name, size in zip(("threads", "batch", "tokens"), sizes, strict=True) if size)
