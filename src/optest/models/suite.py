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

__all__ = ["suite_command"]

_SHIPPED = Path(__file__).parent / "suites"
_OWN = ("model", "workload")
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
    judged = [CASES_OF[workload](context, stated) for workload, stated in runs if workload in CASES_OF]
    cases = [case for each in judged for case in each]
    status = context.run(cases, ModelDriver(), {}, given) if cases else 0
    for workload, stated in runs:
        if workload not in CASES_OF:
            context.echo(f"\n{stated['what']}, {workload}")
            status = max(status, _COMMANDS[workload].call(context, stated))
    return status


def _runs(given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each workload with the options that its command is called with: the run's, else the defaults'; flags go first."""
    path = Path(given["what"])
    if not path.suffix and (_SHIPPED / f"{path}.yaml").is_file():
        path = _SHIPPED / f"{path}.yaml"
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
            elif key in options and options[key].choices and value not in options[key].choices:
                ledger.unknown(place, UnknownName(key, str(value), options[key].choices))
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


def _value(option: Option, stated: Mapping[str, Any]) -> Any:
    value = stated.get(option.name, option.default)
    if option.type == "ints":
        return [value] if isinstance(value, int) else value
    if not option.repeat:
        return value
    if isinstance(value, Mapping):
        return tuple(f"{key}={each}" for key, each in value.items())
    return tuple(value or ())
