"""Every option, declared once: the command line, plans, environment, help and repro lines come from this table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from os import PathLike
from typing import Any

from optest.errors import UnknownName, UsageError
from optest.guests import Option, guests

_FLAG: dict[str, Any] = {"type": "bool", "default": False}
_what = partial(Option, group="What to run", commands=("run", "list"))
_backend = partial(Option, group="Backend", commands=("run", "list", "check", "replay"))
_selected = partial(Option, group="Selection", commands=("run", "list", "check"))
_sets = partial(Option, group="Which cases", commands=("check",))
_how = partial(Option, group="How to run", commands=("run", "check", "model"))
_timed = partial(Option, group="Timings", commands=("run", "check"))
_shown = partial(Option, group="Reports", commands=("run", "check", "replay", "scene", "ctest", "model"))

_PLAN = "YAML plan of cases."
_SOURCE = "Cases from elsewhere: opinfo:add,softmax are torch's samples, onnx-node:all ONNX's tests. Repeatable."
_OP = "Run this operator: the plan's cases of it, or one case made from the flags. Repeatable."
_DTYPE = (
    "Dtype of every input, or one for each, separated by commas; a float leaves indices and masks what "
    "they have to be; of a source, the dtypes to ask."
)
_SHAPE = "Shape of a tensor by name; a check takes it only with --reference. Repeatable."
_ATTR = "Attribute, or backend_config.BACKEND.KEY=VALUE; a check takes it only with --reference. Repeatable."
_GENERATOR = "Fill such as uniform(low=0,high=1), or dotted path of a generator, for all inputs."
_REFERENCE = "Function that computes the expected outputs; for a check also `torch`, which is torch in float64."
_TOLERANCE = "Allowed error, which replaces all other rules; mismatch_ratio=S allows a share of wrong elements."
_TOLERANCES = "Rules of atol and rtol by backend and test, as JSON; a check takes configs/torch_parity.json by itself."
_SIGNED_ZEROS = "A zero of the wrong sign is wrong, where the operator defines the sign (else it is noted)."
_SEED = "Seed of all inputs. [0]"
_BACKEND = "Backend that makes the actual outputs. [numpy]"
_PLUGINS = "Modules that register backends and operators of one's own; OPTEST_PLUGINS or the configuration file."
_VARIANT = "How the backend computes, where it has several ways, as jit. [its default; in a check its baseline, too]"
_CONFIG = "The commands of a backend that runs programs, by operator; only these are checked."
_KEYWORD = "Only cases whose id, operator or tags match: words with and, or, not."
_CASE = "Only cases whose id matches a glob of * ? [12]; for scenes also Foo, ClassA::Foo, ClassA::. Repeatable."
_PRIORITY_MAX = "Only cases as urgent as N: their priority is N or less; 100 is that of cases that state none."
_SHARD = "Only the I-th of N parts; a case is in the same part whatever else is run."
_RERUN_FAILED = "Only what went wrong in the latest or the named run; alone, with that run's options."
_FAILED_FIRST = "First what went wrong in the latest or the named run, then the rest."
_TIER = "How many cases; each tier includes those before it. [parity]"
_GROUP = "validation: shapes, dtypes and refusals alone, which compute nothing where the backend infers shapes."
_CASE_SET = "Only this case set, such as layouts or special. Repeatable."
_EXPECTATIONS = "Known differences of the backend, wrong data, and what to skip, each with its reason. Repeatable."
_ISOLATE = "Where cases run: in this process, in warm workers, in a fresh process each. [auto]"
_TIMEOUT = "Deadline of the backend for one case; a reference has ten times that, from a minute to 5. [300]"
_RETRIES = "Ask again after a crash, a deadline or a lost device; a pass is then suspect. [0]"
_ROUNDS = "Run all N times. [1]"
_NO_DEDUPE = "Run every case by itself, also those that compute the same thing as another one."
_EXITFIRST = "Stop at the first failure."
_UNTRUSTED = "Refuse whatever would run code that the plan names: commands and dotted paths."
_ACCEPT_CONFIG = "Accept configuration and plug-ins that changed while an earlier run executed foreign code."
_BENCH_TIME = "How long each implementation is called: 50ms, 2s. [0.2s]"
_FAIL_IF_SLOWER = "With --bench: fail where an operator's optimized variant takes RATIO times as long as the baseline."
_BENCH_AGAINST = "Time another implementation in turns with it: torch, torch:cuda, numpy, or a backend of yours."
_REPORT = "Report to write: html, json, csv, junit, sarif, markdown, github, timeline, or a package's. Repeatable."
_REPORT_PATH = "Where it is written: a file, or a folder for all of them. [the run's folder]"
_TIMELINE = "Write what ran when on which device, for Chrome's and Perfetto's viewers."
_RUNS_DIR = "Where journals are kept. [.optest/runs]"
_DURATIONS = "Show the N slowest cases at the end. [0]"
_SHRINK = "Below the first five failures, the smallest calls that fail alike, as `optest minimise` finds them."
_NO_COLOR = "No colours."
_VERBOSE = "Say more."
_QUIET = "Say less."

_CORE: tuple[Option, ...] = (
    _what(name="plan", common=True, flags=("--plan", "--config"), metavar="FILE", completes="file", help=_PLAN),
    _what(name="source", repeat=True, metavar="SOURCE:OP,OP", in_trends=True, help=_SOURCE),
    _what(
        name="op",
        common=True,
        flags=("-o", "--op"),
        repeat=True,
        splits=True,
        metavar="NAME",
        commands=("run", "list", "check"),
        help=_OP,
    ),
    _what(name="dtype", common=True, metavar="D0,D1", commands=("run", "list", "check"), help=_DTYPE),
    _what(
        name="shape", common=True, repeat=True, metavar="TENSOR=2x3x4", commands=("run", "list", "check"), help=_SHAPE
    ),
    _what(name="attr", common=True, repeat=True, metavar="KEY=VALUE", commands=("run", "list", "check"), help=_ATTR),
    _what(name="generator", metavar="FILL|MODULE:NAME", help=_GENERATOR),
    _what(name="reference", metavar="MODULE:NAME", commands=("run", "list", "check"), help=_REFERENCE),
    _what(name="tolerance", common=True, metavar="rtol=R,atol=A", commands=("run", "list", "check"), help=_TOLERANCE),
    _what(
        name="tolerances",
        metavar="FILE",
        completes="file",
        commands=("run", "list", "check"),
        in_trends=True,
        help=_TOLERANCES,
    ),
    _what(name="signed_zeros", **_FLAG, commands=("run", "list", "check"), help=_SIGNED_ZEROS),
    _what(name="seed", common=True, type="int", plan="seed", commands=("run", "list", "check", "scene"), help=_SEED),
    _backend(name="backend", common=True, plan="backend", metavar="NAME|KIND", help=_BACKEND),
    _backend(name="plugins", repeat=True, commands=(), help=_PLUGINS),
    _backend(name="chip", plan="chip", help="Chip of the backend."),
    _backend(name="variant", in_trends=True, metavar="NAME", help=_VARIANT),
    _backend(name="config", common=True, metavar="FILE", completes="file", commands=("check",), help=_CONFIG),
    _selected(
        name="keyword",
        common=True,
        flags=("-k",),
        metavar="EXPR",
        commands=("run", "list", "check", "model"),
        help=_KEYWORD,
    ),
    _selected(
        name="case",
        common=True,
        repeat=True,
        metavar="GLOB",
        commands=("run", "list", "check", "scene", "pytest", "model"),
        help=_CASE,
    ),
    _selected(name="tag", repeat=True, splits=True, metavar="TAG", help="Only cases with one of these tags."),
    _selected(name="skip_tag", repeat=True, splits=True, metavar="TAG", help="No cases with these tags."),
    _selected(name="priority_max", type="int", minimum=0, metavar="N", commands=("run", "list"), help=_PRIORITY_MAX),
    _selected(name="shard", metavar="I/N", help=_SHARD),
    _selected(
        name="rerun_failed",
        common=True,
        flags=("--lf", "--rerun-failed"),
        bare="latest",
        metavar="[RUN]",
        help=_RERUN_FAILED,
    ),
    _selected(
        name="failed_first",
        flags=("--ff", "--failed-first"),
        bare="latest",
        metavar="[RUN]",
        commands=("run", "list"),
        help=_FAILED_FIRST,
    ),
    _sets(name="tier", common=True, type="choice", choices=("smoke", "parity", "full"), default="parity", help=_TIER),
    _sets(name="group", type="choice", choices=("validation",), in_trends=True, help=_GROUP),
    _sets(name="case_set", common=True, flags=("--set",), repeat=True, splits=True, metavar="SET", help=_CASE_SET),
    _backend(
        name="expectations",
        common=True,
        repeat=True,
        metavar="FILE",
        completes="file",
        commands=("run", "check"),
        help=_EXPECTATIONS,
    ),
    _how(
        name="isolate",
        type="choice",
        choices=("auto", "none", "worker", "case"),
        default="auto",
        commands=("run", "check", "replay", "model"),
        help=_ISOLATE,
    ),
    _how(name="jobs", common=True, flags=("-j", "--jobs"), type="int", minimum=1, default=1, help="Workers. [1]"),
    _how(
        name="timeout",
        common=True,
        type="float",
        default=300.0,
        metavar="SECONDS",
        commands=("run", "list", "check", "replay", "scene", "model"),
        help=_TIMEOUT,
    ),
    _how(name="retries", type="int", minimum=0, default=0, commands=("run", "list", "check"), help=_RETRIES),
    _how(name="rounds", type="int", minimum=1, default=1, commands=("run", "scene", "pytest"), help=_ROUNDS),
    _how(name="no_dedupe", type="bool", commands=("run",), help=_NO_DEDUPE),
    _how(
        name="exitfirst",
        common=True,
        flags=("-x", "--exitfirst", "--fail-fast"),
        **_FLAG,
        plan="fail_fast",
        commands=("run", "check", "scene", "model"),
        help=_EXITFIRST,
    ),
    _how(name="maxfail", type="int", minimum=0, default=0, help="Stop after N. [0]"),
    _how(name="resume", common=True, metavar="RUN", commands=("run", "check", "scene"), help="Go on with a run."),
    _how(name="accept_config", **_FLAG, commands=("run", "list", "check", "replay", "model"), help=_ACCEPT_CONFIG),
    _how(name="untrusted", **_FLAG, commands=("run", "list"), help=_UNTRUSTED),
    _timed(name="bench", **_FLAG, help="Time every case that passes, without what surrounds the call."),
    _timed(name="bench_time", default="0.2s", metavar="TIME", help=_BENCH_TIME),
    _timed(name="fail_if_slower", type="float", minimum=1, commands=("check",), metavar="RATIO", help=_FAIL_IF_SLOWER),
    _timed(name="bench_against", metavar="BACKEND", commands=("run",), help=_BENCH_AGAINST),
    _shown(name="report", common=True, repeat=True, splits=True, metavar="NAME", help=_REPORT),
    _shown(name="report_path", common=True, metavar="FILE|DIR", completes="file", help=_REPORT_PATH),
    _shown(
        name="timeline", metavar="FILE", completes="file", commands=("run", "check", "scene", "pytest"), help=_TIMELINE
    ),
    _shown(
        name="runs_dir",
        default=".optest/runs",
        metavar="DIR",
        completes="folder",
        commands=("run", "list", "check", "replay", "report", "runs", "scene", "ctest", "model"),
        help=_RUNS_DIR,
    ),
    _shown(
        name="durations",
        type="int",
        minimum=0,
        default=0,
        metavar="N",
        commands=("run", "check", "ctest", "model"),
        help=_DURATIONS,
    ),
    _shown(name="shrink", common=True, **_FLAG, commands=("run", "check"), help=_SHRINK),
    _shown(name="no_color", **_FLAG, commands=("run", "check", "replay", "report", "ctest", "model"), help=_NO_COLOR),
    _shown(
        name="verbose",
        common=True,
        flags=("-v", "--verbose"),
        type="count",
        default=0,
        commands=("run", "list", "check", "replay", "report", "ctest", "model"),
        help=_VERBOSE,
    ),
    _shown(
        name="quiet",
        common=True,
        flags=("-q", "--quiet"),
        type="count",
        default=0,
        commands=("run", "check", "replay", "report", "ctest", "model"),
        help=_QUIET,
    ),
)


def _in_groups(options: tuple[Option, ...], of_guests: tuple[Option, ...]) -> tuple[Option, ...]:
    """The options group by group; a group of a guest's own stands behind the one that says who is asked."""
    order = list(dict.fromkeys(option.group for option in options))
    own = [group for group in dict.fromkeys(option.group for option in of_guests) if group not in order]
    place = order.index("Backend") + 1
    order[place:place] = own
    return tuple(sorted((*options, *of_guests), key=lambda option: order.index(option.group)))


OPTIONS = _in_groups(_CORE, tuple(option for guest in guests() for option in guest.options))


class RunOptions(Mapping[str, Any]):
    """The options of a run that somebody stated, by their names in :data:`OPTIONS`.

    One value of an option that may be repeated is put into a tuple; a mapping of names to values becomes texts:
    ``shape={"input0": [2, 3]}`` is ``--shape input0=2x3``, and ``tolerance={"rtol": 1e-3}`` ``--tolerance rtol=0.001``.
    What is None is not stated.

    Raises:
        UnknownName: for an option, or one of its choices, that does not exist.
        UsageError: for a value of another type.
    """

    __slots__ = ("_stated",)

    def __init__(self, **stated: Any) -> None:
        by_name = {option.name: option for option in OPTIONS}
        for name in stated:
            if name not in by_name:
                raise UnknownName("option", name, by_name)
        self._stated = {
            name: _checked(by_name[name], _several(by_name[name], value) if by_name[name].repeat else _single(value))
            for name, value in stated.items()
            if value is not None
        }

    def __getitem__(self, name: str) -> Any:
        return self._stated[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stated)

    def __len__(self) -> int:
        return len(self._stated)

    def __repr__(self) -> str:
        return f"RunOptions({', '.join(f'{name}={value!r}' for name, value in self._stated.items())})"


_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("int", "count"), (int, "an integer")),
    "float": ((int, float), "a number"),
    "bool": (bool, "True or False"),
    "ints": (object, ""),
}


def _checked(option: Option, value: Any) -> Any:
    kind, words = _TYPES.get(option.type, (str, "text"))
    for each in value if option.repeat else (value,):
        if not isinstance(each, kind) or (isinstance(each, bool) and option.type in ("int", "count", "float")):
            raise UsageError(f"{option.name} is {each!r}, but should be {words}")
        if option.choices and each not in option.choices:
            raise UnknownName(option.name, each, option.choices)
    return value


def _repeated(value: Any) -> Any:
    """The values of an option that may be repeated, as the command line has them."""
    if isinstance(value, Mapping):
        texts = {
            name: "x".join(map(str, each)) if isinstance(each, (list, tuple)) else each for name, each in value.items()
        }
        return tuple(f"{name}={text}" for name, text in texts.items())
    several = (value,) if isinstance(value, (str, PathLike)) or not isinstance(value, Iterable) else value
    return tuple(map(_single, several))


def _several(option: Option, value: Any) -> tuple[Any, ...]:
    values = _repeated(value)
    return split_values(values) if option.splits and all(isinstance(each, str) for each in values) else values


def split_values(values: Iterable[str]) -> tuple[str, ...]:
    """Split all values at commas; keep "" for a value without parts, so that it can be refused."""
    return tuple(
        part for value in values for part in [part.strip() for part in value.split(",") if part.strip()] or [""]
    )


def _single(value: Any) -> Any:
    """The value of an option that is stated once, as the command line has it."""
    if isinstance(value, PathLike):
        return str(value)
    several = _repeated(value) if isinstance(value, Mapping) else value
    return ",".join(map(str, several)) if isinstance(several, (list, tuple)) else several
