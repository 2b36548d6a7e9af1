"""``optest model suite``: several models and workloads in one file, in YAML or JSON.

{"defaults": {"backend": "onnxruntime"},
 "runs": [{"model": "gpt2", "workload": ["validate", "trace"]}, {"model": "resnet34", "variant": "basic"}]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from optest.errors import UnknownName
from optest.guests import CommandContext, Option
from optest.models.commands import CASES_OF
from optest.models.driver import ModelDriver
from optest.models.guest import GUEST
from optest.plan.problems import Ledger, read_document
from optest.plan.values import shown
from optest.spec import Fault, TestCase

_SHIPPED = Path(__file__).parent / "suites"
_MODEL = Option(name="model")
_OWN = {"model": _MODEL, "workload": Option(name="workload", repeat=True)}
_EVERY = {each.name.removeprefix("model "): each for each in GUEST.commands}
_COMMANDS = {name: _EVERY[name] for name in ("validate", "trace", "bench", "run")}


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    defaults: dict[str, Any] = Field(default_factory=dict)
    runs: list[dict[str, Any]] = Field(min_length=1)


def suite_command(context: CommandContext, **given: Any) -> int:
    """Run what a suite lists: all cases in one run, then what judges nothing, one after another.

    Raises:
        PlanError: with everything that is wrong with the file.
    """
    runs = list(_runs(given))
    judged = [_cases(context, *each) for each in runs if each[0] in CASES_OF]
    cases = [case for each in judged for case in each or ()]
    status = max(int(None in judged), context.run(cases, ModelDriver(), {}, given) if cases else 0)
    for workload, stated in runs:
        if workload not in CASES_OF:
            context.echo(f"\n{stated['what']}, {workload}")
            status = max(status, _COMMANDS[workload].call(context, stated))
    return status


def _cases(context: CommandContext, workload: str, stated: Mapping[str, Any]) -> list[TestCase] | None:
    """None for a model that cannot be opened, which is said: the others are run."""
    try:
        return CASES_OF[workload](context, stated)
    except Fault as fault:
        context.echo(f"{stated['what']}, {workload}: {fault.reason.value}: {fault.message}", err=True)
        return None


def _runs(given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each workload with the options that its command is called with: the run's, else the defaults'; flags go first."""
    path = Path(given["what"])
    if not path.suffix and not path.exists():
        shipped = {each.stem: each for each in _SHIPPED.glob("*.yaml")}
        if str(path) not in shipped:
            raise UnknownName("suite", str(path), sorted(shipped))
        path = shipped[str(path)]
    document, source = read_document(path, "the suite", _Document, lambda _: list(_Document.model_fields))
    ledger = Ledger(source)
    options = {option.name: option for each in _COMMANDS.values() for option in each.options}
    flags = {name: value for name, value in given.items() if name != "what" and value not in (None, ())}
    found = list[tuple[str, dict[str, Any]]]()
    for index, run in enumerate(document.runs):
        stated = {**document.defaults, **run}
        for key, value in stated.items():
            place = ("runs", index, key) if key in run else ("defaults", key)
            if key not in options and key not in _OWN:
                ledger.unknown(place, UnknownName("key of a suite", key, sorted({*_OWN, *options})))
            elif expected := _misfit(options.get(key, _OWN.get(key, _MODEL)), value):
                ledger.problem(place, f"{key} is {shown(value)}, expected {expected}")
            elif key in options and options[key].choices and value not in options[key].choices:
                ledger.unknown(place, UnknownName(key, value, options[key].choices))
        if ledger.problems:
            continue
        workloads = stated.get("workload", "validate")
        for workload in [workloads] if isinstance(workloads, str) else workloads:
            if workload not in _COMMANDS:
                ledger.unknown(("runs", index), UnknownName("workload", workload, _COMMANDS))
            elif "model" not in stated:
                ledger.problem(("runs", index), "a run states no model")
            else:
                own = {each.name: _value(each, stated) for each in _COMMANDS[workload].options}
                own = {**given, **own, **flags, "what": stated["model"]}
                if own["dump_dir"]:
                    own["dump_dir"] = str(Path(own["dump_dir"], f"{len(found):02}-{workload}"))
                found.append((workload, own))
    ledger.refuse()
    yield from found


_TYPES = {"int": ((int,), "an integer"), "ints": ((int,), "an integer"), "float": ((int, float), "a number")}
_TYPES |= {"bool": ((bool,), "true or false")}


def _misfit(option: Option, value: Any) -> str:
    """Return the form that a value of this option should have, "" if it has that form."""
    if option.repeat:
        texts = value if isinstance(value, list) else [value]
        is_mapping = isinstance(value, Mapping) and all(isinstance(each, (str, int, float)) for each in value.values())
        fits = texts and (is_mapping or all(isinstance(each, str) for each in texts))
        return "" if fits else "text or a list of texts"
    kinds, expected = _TYPES.get(option.type, ((str,), "text"))
    values = value if option.type == "ints" and isinstance(value, list) else [value]
    if not all(type(each) in kinds for each in values):
        return expected
    return "" if option.minimum is None or min(values) >= option.minimum else f"{option.minimum} or more"


def _value(option: Option, stated: Mapping[str, Any]) -> Any:
    value = stated.get(option.name, option.default)
    if option.type == "ints":
        return [value] if isinstance(value, int) else value
    if not option.repeat:
        return value
    if isinstance(value, Mapping):
        return tuple(f"{key}={each}" for key, each in value.items())
    return (value,) if isinstance(value, str) else tuple(value or ())
