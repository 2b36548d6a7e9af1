"""Table of all options; the command line, plans, environment variables, help and reproduction commands read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from os import PathLike
from typing import Any

from optest.errors import UnknownName, UsageError
from optest.guests import Option, guests

_FLAG: dict[str, Any] = {"type": "bool", "default": False}
_FILE: dict[str, Any] = {"metavar": "FILE", "completes": "file"}
_COUNT: dict[str, Any] = {"type": "int", "minimum": 0, "default": 0}
_source = partial(Option, group="What to run", commands=("run", "list", "check"))
_backend = partial(Option, group="Backend", commands=("run", "list", "check", "replay"))
_selection = partial(Option, group="Selection", commands=("run", "list", "check"))
_check = partial(Option, group="Which cases", commands=("check",))
_run = partial(Option, group="How to run", commands=("run", "check", "model"))
_timing = partial(Option, group="Timings", commands=("run", "check"))
_report = partial(Option, group="Reports", commands=("run", "check", "replay", "scene", "ctest", "model"))

_PLAN = "YAML plan with the cases to run."
_SOURCE = "Import cases: opinfo:add,softmax from torch's OpInfo samples, onnx-node:all from ONNX's tests. Repeatable."
_OP = "Run this operator: its cases in the plan, or one case built from these options. Repeatable."
_DTYPE = (
    "Dtype of all inputs, or one for each input, separated by commas; a float dtype is not applied to indices and "
    "masks. With --source: the dtypes to import."
)
_SHAPE = "Shape of one tensor. With check: only together with --reference. Repeatable."
_ATTR = (
    "Attribute of the operator, or backend option as backend_config.BACKEND.KEY=VALUE. With check: only together with "
    "--reference. Repeatable."
)
_GENERATOR = "Values of all inputs: a fill such as uniform(low=0,high=1), or the import path of a generator."
_REFERENCE = "Function that computes the expected outputs, by import path. With check also `torch`: PyTorch in float64."
_TOLERANCE = "Allowed error; overrides all other rules. mismatch_ratio=S allows a share S of wrong elements."
_TOLERANCES = "JSON file of rtol and atol by backend and test. With check the default is configs/torch_parity.json."
_SIGNED_ZEROS = "Fail on a zero with the wrong sign if the operator defines the sign. [only a note]"
_SEED = "Seed of all inputs. [0]"
_BACKEND = "Backend under test. [numpy]"
_PLUGINS = "Modules that register your backends and operators; set OPTEST_PLUGINS or the configuration file."
_VARIANT = "Variant of the backend, such as jit, if it has several. [its default; with check also its baseline]"
_CONFIG = "File with the commands of a backend that runs programs, by operator; only these operators are checked."
_KEYWORD = "Run only cases whose id, operator or tags match EXPR: words joined by and, or, not."
_CASE = "Run only cases whose id matches GLOB (* ? [12]); scenes also match Foo, ClassA::Foo, ClassA::. Repeatable."
_PRIORITY_MAX = "Run only cases of priority N or less (smaller is more urgent); the default priority is 100."
_SHARD = "Run only the I-th of N parts; the part of a case does not depend on other selections."
_RERUN_FAILED = "Re-run the failures of the last run, or of RUN; as the only option, also with the options of that run."
_FAILED_FIRST = "Run the failures of the last run, or of RUN, first, then the other cases."
_TIER = "Number of cases: each tier includes the tiers before it. [parity]"
_GROUP = "validation: check only shapes, dtypes and rejected calls; nothing is computed if the backend infers shapes."
_CASE_SET = "Run only this case set, such as layouts or special. Repeatable."
_EXPECTATIONS = (
    "Known differences of the backend, cases with wrong data, and cases to skip, each with a reason. Repeatable."
)
_ISOLATE = "Run cases in this process (none), in reusable workers, or each in a new process (case). [auto]"
_TIMEOUT = "Time limit for one case, in seconds; a reference gets ten times as much, but 1 to 5 minutes. [300]"
_RETRIES = "Retry a case N times after a crash, a timeout or a lost device; a later pass counts as SUSPECT. [0]"
_ROUNDS = "Run all cases N times. [1]"
_NO_DEDUPE = "Run every case, even if it computes the same as another one."
_EXITFIRST = "Stop at the first failure."
_UNTRUSTED = "Reject a plan that would run code: commands and import paths."
_ACCEPT_CONFIG = "Accept configuration files and plug-ins that changed while an earlier run executed foreign code."
_BENCH_TIME = "Measuring time for each implementation, such as 50ms or 2s. [0.2s]"
_FAIL_IF_SLOWER = "With --bench: fail if an operator's optimized variant takes RATIO times as long as the baseline."
_BENCH_AGAINST = "Also time this implementation, in alternation: torch, torch:cuda, numpy, or another backend."
_REPORT = "Report to write: html, json, csv, junit, sarif, markdown, github, timeline, or a plug-in's. Repeatable."
_REPORT_PATH = "File of the report, or folder for several reports. [the run's folder]"
_TIMELINE = "Write a timeline of cases and devices, for the trace viewers of Chrome and Perfetto."
_RUNS_DIR = "Folder in which runs keep their journals. [.optest/runs]"
_DURATIONS = "Show the N slowest cases at the end. [0]"
_SHRINK = "For the first five failures, also show the smallest call with the same failure, as `optest minimise` does."
_NO_COLOR = "Print without colours."
_VERBOSE = "Print more details."
_QUIET = "Print fewer details."

_CORE: tuple[Option, ...] = (
    _source(name="plan", common=True, flags=("--plan", "--config"), **_FILE, commands=("run", "list"), help=_PLAN),
    _source(name="source", repeat=True, metavar="SOURCE:OP,OP", commands=("run", "list"), in_trends=True, help=_SOURCE),
    _source(name="op", common=True, flags=("-o", "--op"), repeat=True, splits=True, metavar="NAME", help=_OP),
    _source(name="dtype", common=True, metavar="D0,D1", help=_DTYPE),
    _source(name="shape", common=True, repeat=True, metavar="TENSOR=2x3x4", help=_SHAPE),
    _source(name="attr", common=True, repeat=True, metavar="KEY=VALUE", help=_ATTR),
    _source(name="generator", metavar="FILL|MODULE:NAME", commands=("run", "list"), help=_GENERATOR),
    _source(name="reference", metavar="MODULE:NAME", help=_REFERENCE),
    _source(name="tolerance", common=True, metavar="rtol=R,atol=A", help=_TOLERANCE),
    _source(name="tolerances", **_FILE, in_trends=True, help=_TOLERANCES),
    _source(name="signed_zeros", **_FLAG, help=_SIGNED_ZEROS),
    _source(name="seed", common=True, type="int", plan="seed", commands=("run", "list", "check", "scene"), help=_SEED),
    _backend(name="backend", common=True, plan="backend", metavar="NAME|KIND", help=_BACKEND),
    _backend(name="plugins", repeat=True, commands=(), help=_PLUGINS),
    _backend(name="chip", plan="chip", help="Chip that the backend compiles for or runs on."),
    _backend(name="variant", in_trends=True, metavar="NAME", help=_VARIANT),
    _backend(name="config", common=True, **_FILE, commands=("check",), help=_CONFIG),
    _selection(
        name="keyword",
        common=True,
        flags=("-k",),
        metavar="EXPR",
        commands=("run", "list", "check", "model"),
        help=_KEYWORD,
    ),
    _selection(
        name="case",
        common=True,
        repeat=True,
        metavar="GLOB",
        commands=("run", "list", "check", "scene", "pytest", "model"),
        help=_CASE,
    ),
    _selection(name="tag", repeat=True, splits=True, metavar="TAG", help="Run only cases that have one of these tags."),
    _selection(
        name="skip_tag", repeat=True, splits=True, metavar="TAG", help="Leave out cases that have one of these tags."
    ),
    _selection(name="priority_max", type="int", minimum=0, metavar="N", commands=("run", "list"), help=_PRIORITY_MAX),
    _selection(name="shard", metavar="I/N", help=_SHARD),
    _selection(
        name="rerun_failed",
        common=True,
        flags=("--lf", "--rerun-failed"),
        bare="latest",
        metavar="[RUN]",
        help=_RERUN_FAILED,
    ),
    _selection(
        name="failed_first",
        flags=("--ff", "--failed-first"),
        bare="latest",
        metavar="[RUN]",
        commands=("run", "list"),
        help=_FAILED_FIRST,
    ),
    _check(name="tier", common=True, type="choice", choices=("smoke", "parity", "full"), default="parity", help=_TIER),
    _check(name="group", type="choice", choices=("validation",), in_trends=True, help=_GROUP),
    _check(name="case_set", common=True, flags=("--set",), repeat=True, splits=True, metavar="SET", help=_CASE_SET),
    _backend(name="expectations", common=True, repeat=True, **_FILE, commands=("run", "check"), help=_EXPECTATIONS),
    _run(
        name="isolate",
        type="choice",
        choices=("auto", "none", "worker", "case"),
        default="auto",
        commands=("run", "check", "replay", "model"),
        help=_ISOLATE,
    ),
    _run(
        name="jobs",
        common=True,
        flags=("-j", "--jobs"),
        type="int",
        minimum=1,
        default=1,
        help="Number of parallel workers. [1]",
    ),
    _run(
        name="timeout",
        common=True,
        type="float",
        default=300.0,
        metavar="SECONDS",
        commands=("run", "list", "check", "replay", "scene", "model"),
        help=_TIMEOUT,
    ),
    _run(name="retries", **_COUNT, commands=("run", "list", "check"), help=_RETRIES),
    _run(name="rounds", type="int", minimum=1, default=1, commands=("run", "scene", "pytest"), help=_ROUNDS),
    _run(name="no_dedupe", type="bool", commands=("run",), help=_NO_DEDUPE),
    _run(
        name="exitfirst",
        common=True,
        flags=("-x", "--exitfirst", "--fail-fast"),
        **_FLAG,
        plan="fail_fast",
        commands=("run", "check", "scene", "model"),
        help=_EXITFIRST,
    ),
    _run(name="maxfail", **_COUNT, help="Stop after N failures; 0: no limit. [0]"),
    _run(
        name="resume",
        common=True,
        metavar="RUN",
        commands=("run", "check", "scene"),
        help="Continue RUN with its unfinished cases.",
    ),
    _run(name="accept_config", **_FLAG, commands=("run", "list", "check", "replay", "model"), help=_ACCEPT_CONFIG),
    _run(name="untrusted", **_FLAG, commands=("run", "list"), help=_UNTRUSTED),
    _timing(name="bench", **_FLAG, help="Time the call of every case that passes."),
    _timing(name="bench_time", default="0.2s", metavar="TIME", help=_BENCH_TIME),
    _timing(name="fail_if_slower", type="float", minimum=1, commands=("check",), metavar="RATIO", help=_FAIL_IF_SLOWER),
    _timing(name="bench_against", metavar="BACKEND", commands=("run",), help=_BENCH_AGAINST),
    _report(name="report", common=True, repeat=True, splits=True, metavar="NAME", help=_REPORT),
    _report(name="report_path", common=True, metavar="FILE|DIR", completes="file", help=_REPORT_PATH),
    _report(name="timeline", **_FILE, commands=("run", "check", "scene", "pytest"), help=_TIMELINE),
    _report(
        name="runs_dir",
        default=".optest/runs",
        metavar="DIR",
        completes="folder",
        commands=("run", "list", "check", "replay", "report", "runs", "scene", "ctest", "model"),
        help=_RUNS_DIR,
    ),
    _report(name="durations", **_COUNT, metavar="N", commands=("run", "check", "ctest", "model"), help=_DURATIONS),
    _report(name="shrink", common=True, **_FLAG, commands=("run", "check"), help=_SHRINK),
    _report(name="no_color", **_FLAG, commands=("run", "check", "replay", "report", "ctest", "model"), help=_NO_COLOR),
    _report(
        name="verbose",
        common=True,
        flags=("-v", "--verbose"),
        type="count",
        default=0,
        commands=("run", "list", "check", "replay", "report", "ctest", "model"),
        help=_VERBOSE,
    ),
    _report(
        name="quiet",
        common=True,
        flags=("-q", "--quiet"),
        type="count",
        default=0,
        commands=("run", "check", "replay", "report", "ctest", "model"),
        help=_QUIET,
    ),
)


def _sort_by_group(options: tuple[Option, ...], guest_options: tuple[Option, ...]) -> tuple[Option, ...]:
    """Return all options sorted by group; groups that only integrations use come right after the group "Backend"."""
    order = list(dict.fromkeys(option.group for option in options))
    new_groups = [group for group in dict.fromkeys(option.group for option in guest_options) if group not in order]
    index = order.index("Backend") + 1
    order[index:index] = new_groups
    return tuple(sorted((*options, *guest_options), key=lambda option: order.index(option.group)))


OPTIONS = _sort_by_group(_CORE, tuple(option for guest in guests() for option in guest.options))


class RunOptions(Mapping[str, Any]):
    """Explicitly set options of a run, by their names in :data:`OPTIONS`.

    A single value of a repeatable option becomes a tuple; a mapping of names to values becomes text:
    ``shape={"input0": [2, 3]}`` is ``--shape input0=2x3``, and ``tolerance={"rtol": 1e-3}`` ``--tolerance rtol=0.001``.
    An option that is None is not set.

    Raises:
        UnknownName: for an option, or one of its choices, that does not exist.
        UsageError: for a value of the wrong type.
    """

    __slots__ = ("_values",)

    def __init__(self, **options: Any) -> None:
        by_name = {option.name: option for option in OPTIONS}
        for name in options:
            if name not in by_name:
                raise UnknownName("option", name, by_name)
        self._values: dict[str, Any] = {}
        for name, value in options.items():
            if value is not None:
                option = by_name[name]
                converted = _to_texts(value) if option.repeat else _to_text(value)
                if option.splits and all(isinstance(text, str) for text in converted):
                    converted = split_values(converted)
                self._values[name] = _require_type(option, converted)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"RunOptions({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("int", "count"), (int, "an integer")),
    "float": ((int, float), "a number"),
    "bool": (bool, "True or False"),
    "ints": (object, ""),
}


def _require_type(option: Option, value: Any) -> Any:
    """Return ``value`` unchanged.

    Raises:
        UsageError: if it, or one element of a repeatable option, has the wrong type.
        UnknownName: if it is not among the option's choices.
    """
    kind, words = _TYPES.get(option.type, (str, "text"))
    for element in value if option.repeat else (value,):
        # bool is a subclass of int
        if not isinstance(element, kind) or (isinstance(element, bool) and option.type in ("int", "count", "float")):
            raise UsageError(f"{option.name} is {element!r}, expected {words}")
        if option.choices and element not in option.choices:
            raise UnknownName(option.name, element, option.choices)
    return value


def _to_texts(value: Any) -> tuple[Any, ...]:
    """Convert a mapping to ``name=value`` texts (a list value to ``2x3``), any other value to a tuple of its parts."""
    if isinstance(value, Mapping):
        texts = {
            name: "x".join(map(str, part)) if isinstance(part, (list, tuple)) else part for name, part in value.items()
        }
        return tuple(f"{name}={text}" for name, text in texts.items())
    values = (value,) if isinstance(value, (str, PathLike)) or not isinstance(value, Iterable) else value
    return tuple(map(_to_text, values))


def split_values(values: Iterable[str]) -> tuple[str, ...]:
    """Split all values at commas; keep "" for a value without parts, so that resolution rejects it as empty."""
    return tuple(
        part for value in values for part in [part.strip() for part in value.split(",") if part.strip()] or [""]
    )


def _to_text(value: Any) -> Any:
    """Convert a path to str, a list or mapping to comma-separated text; return any other value unchanged."""
    if isinstance(value, PathLike):
        return str(value)
    parts = _to_texts(value) if isinstance(value, Mapping) else value
    return ",".join(map(str, parts)) if isinstance(parts, (list, tuple)) else parts
