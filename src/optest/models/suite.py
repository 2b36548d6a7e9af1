"""``optest model suite``: models and workloads that a YAML or JSON file lists.

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
_EVERY = {command.name.removeprefix("model "): command for command in GUEST.commands}
_COMMANDS = {name: _EVERY[name] for name in ("validate", "trace", "bench", "run")}


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    defaults: dict[str, Any] = Field(default_factory=dict)
    runs: list[dict[str, Any]] = Field(min_length=1)


def suite_command(context: CommandContext, **given: Any) -> int:
    """Run a suite: validate and trace as one run, then bench and run one by one; return the exit status.

    Raises:
        PlanError: with all problems of the file.
    """
    runs = list(_runs(given))
    compared = [_cases(context, *run) for run in runs if run[0] in CASES_OF]
    cases = [case for group in compared for case in group or ()]
    status = max(int(None in compared), context.run(cases, ModelDriver(), {}, given) if cases else 0)
    for workload, stated in runs:
        if workload not in CASES_OF:
            context.echo(f"\n{stated['what']}, {workload}")
            status = max(status, _COMMANDS[workload].call(context, stated))
    return status


def _cases(context: CommandContext, workload: str, stated: Mapping[str, Any]) -> list[TestCase] | None:
    """Return the cases of one workload; print the fault and return None for a model that cannot be opened."""
    try:
        return CASES_OF[workload](context, stated)
    except Fault as fault:
        context.echo(f"{stated['what']}, {workload}: {fault.reason.value}: {fault.message}", err=True)
        return None


def _runs(given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each workload with its options: from the command line, else from the run, else from the defaults."""
    path = Path(given["what"])
    if not path.suffix and not path.exists():
        shipped = {file.stem: file for file in _SHIPPED.glob("*.yaml")}
        if str(path) not in shipped:
            raise UnknownName("suite", str(path), sorted(shipped))
        path = shipped[str(path)]
    document, source = read_document(path, "the suite", _Document, lambda _: list(_Document.model_fields))
    ledger = Ledger(source)
    options = {option.name: option for command in _COMMANDS.values() for option in command.options}
    flags = {name: value for name, value in given.items() if name != "what" and value not in (None, ())}
    runs = list[tuple[str, dict[str, Any]]]()
    for index, run in enumerate(document.runs):
        stated = {**document.defaults, **run}
        for key, value in stated.items():
            place = ("runs", index, key) if key in run else ("defaults", key)
            if key not in options and key not in _OWN:
                ledger.unknown(place, UnknownName("key of a suite", key, sorted({*_OWN, *options})))
            elif expected := _expected_form(options.get(key, _OWN.get(key, _MODEL)), value):
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
                ledger.problem(("runs", index), "the run has no model; add a key model")
            else:
                values = {option.name: _option_value(option, stated) for option in _COMMANDS[workload].options}
                values = {**given, **values, **flags, "what": stated["model"]}
                if values["dump_dir"]:
                    values["dump_dir"] = str(Path(values["dump_dir"], f"{len(runs):02}-{workload}"))
                runs.append((workload, values))
    ledger.refuse()
    yield from runs


_TYPES = {"int": ((int,), "an integer"), "ints": ((int,), "an integer"), "float": ((int, float), "a number")}
_TYPES |= {"bool": ((bool,), "true or false")}


def _expected_form(option: Option, value: Any) -> str:
    """Return a description of the values that the option accepts; "" if it accepts ``value``."""
    if option.repeat:
        texts = value if isinstance(value, list) else [value]
        is_mapping = isinstance(value, Mapping) and all(isinstance(x, (str, int, float)) for x in value.values())
        fits = texts and (is_mapping or all(isinstance(text, str) for text in texts))
        return "" if fits else "text or a list of texts"
    kinds, expected = _TYPES.get(option.type, ((str,), "text"))
    values = value if option.type == "ints" and isinstance(value, list) else [value]
    if not all(type(x) in kinds for x in values):
        return expected
    return "" if option.minimum is None or min(values) >= option.minimum else f"{option.minimum} or more"


def _option_value(option: Option, stated: Mapping[str, Any]) -> Any:
    """Return the value of an option in the form that the command line gives it."""
    value = stated.get(option.name, option.default)
    if option.type == "ints":
        return [value] if isinstance(value, int) else value
    if not option.repeat:
        return value
    if isinstance(value, Mapping):
        return tuple(f"{key}={entry}" for key, entry in value.items())
    return (value,) if isinstance(value, str) else tuple(value or ())
