"""The options of the plug-in, and their conversion to options of ``optest run``."""

from __future__ import annotations

import logging
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from optest.api.collecting import PLAN_NAMES
from optest.settings import OPTIONS, Option, environment, resolve
from optest.suites import TIER_NAMES


def add_options(parser: pytest.Parser) -> None:
    """Add the options of model cases, backend and plug-ins, and the keys of the ini."""
    group = parser.getgroup("optest", "operator cases (optest)")
    group.addoption("--model", action="append", default=[], metavar="NAME", help="run this model only; repeatable")
    group.addoption("--dedupe", dest="dedupe", action="store_true", default=True, help="share executions (default)")
    group.addoption("--no-dedupe", dest="dedupe", action="store_false", help="run every case by itself")
    group.addoption("--list-models", action="store_true", help="list the models and run nothing")
    group.addoption("--list-cases", action="store_true", help="list model::name::op and run nothing")
    group.addoption("--show-skipped", action="store_true", help="show why cases were skipped")
    group.addoption(
        "--compile-backend",
        default=environment().get("TEST_COMPILE_BACKEND") or None,
        type=_option_value,
        metavar="NAME",
        help="backend of torch.compile; eager compiles nothing ($TEST_COMPILE_BACKEND, else the ini, else eager)",
    )
    group.addoption(
        "--torch-device", default=None, type=_option_value, metavar="DEVICE", help="cpu, cuda, npu … (default: cpu)"
    )
    group.addoption(
        "--expectations",
        action="append",
        default=[],
        metavar="FILE",
        help="file of expected failures and skips with their reasons, in addition to the ini's; repeatable",
    )
    group.addoption("--optest-backend", default=None, type=_option_value, metavar="NAME", help="backend of the cases")
    group.addoption(
        "--optest-plugins", action="append", default=[], metavar="MODULE", help="module to load for them; repeatable"
    )
    group.addoption(
        "--optest-tier",
        default="",
        choices=TIER_NAMES,
        help="tier of suites (define_backend_tests); default: the ini's optest_tier, else the file's",
    )
    group.addoption(
        "--optest-bench", action="store_true", default=False, help="time every case that passes, and print a table"
    )
    parser.addini("optest_backend", "backend of the cases, unless OPTEST_BACKEND names one", default="")
    parser.addini("optest_plugins", "modules to load for the cases, as OPTEST_PLUGINS does", type="args", default=[])
    parser.addini("optest_plans", "globs of the file names of plans", type="args", default=list(PLAN_NAMES))
    parser.addini("optest_platforms", "further names for --platform", type="args", default=[])
    parser.addini("optest_compile_backend", "backend of torch.compile for model cases, eager without", default="")
    parser.addini("optest_tier", "tier of suites: smoke, parity or full", default="")
    parser.addini("optest_expectations", "files of expected failures", type="paths", default=[])
    parser.addini("optest_models", "files and folders of model cases and plans", type="paths", default=[])


_OF_SCENES = [option for option in OPTIONS if "pytest" in option.commands]


def add_options_of_scenes(parser: pytest.Parser) -> None:
    """Add the options of scenes, except those that the project or another plug-in has registered and so owns."""
    taken = {name for group in parser._groups for option in group.options for name in option.names()}
    group = parser.getgroup("optest scenes", "scenes and devices (optest)")
    for option in _OF_SCENES:
        if taken.isdisjoint(option.flags):
            group.addoption(*option.flags, dest=option.name, default=None, help=option.help, **_keywords(option))


def _keywords(option: Option) -> dict[str, Any]:
    """Return the keywords of ``addoption`` for the type of an option."""
    if option.type == "bool":
        return {"action": "store_true"}
    keywords: dict[str, Any] = {"action": "append" if option.repeat else "store", "metavar": option.metavar or None}
    if option.type == "int":
        keywords["type"] = int
    return keywords | ({"choices": option.choices} if option.type == "choice" else {})


def without_values(arguments: Sequence[str]) -> list[str]:
    """Return the command line without values of options of scenes: before they are registered, these seem files."""
    flags = {flag for option in _OF_SCENES if option.type != "bool" for flag in option.flags}
    return [word for before, word in zip(["", *arguments], arguments, strict=False) if before not in flags]


def scene_option(config: pytest.Config, name: str) -> Any:
    """Return the value of an option of scenes, also if the project registered it under another name; else None."""
    (option,) = (x for x in _OF_SCENES if x.name == name)
    return config.getoption(option.flags[0], config.getoption(name, None))


def options_of_scenes(config: pytest.Config) -> dict[str, Any]:
    """Return the options of ``optest run`` for scenes, without options that select among the session's cases."""
    options = {x.name: scene_option(config, x.name) for x in _OF_SCENES}
    for name in ("runtime", "level", "manual", "case"):
        options.pop(name)
    options["log_level"] = level_of_a_runtime(config.getoption("log_level"))
    options |= {name: value for name, value in options_of_a_run(config).items() if name not in _NOT_OF_SCENES}
    return {name: value for name, value in options.items() if value is not None}


def level_of_a_runtime(text: str | None) -> str | None:
    """Return a runtime's level for pytest's ``--log-level``: the nearest one that does not log more."""
    if text is None:
        return None
    number = int(text) if text.isdecimal() else getattr(logging, text.upper(), logging.WARNING)
    levels = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn"}
    return next((name for level, name in levels.items() if number <= level), "error")


def _option_value(name: str) -> str:
    """Return the value; raise ``ArgumentTypeError`` if it is empty."""
    # An empty variable of a shell would silently disable compiling or select the CPU.
    if not name:
        raise ArgumentTypeError("it is empty, expected a name; to compile nothing: eager, for the CPU: cpu")
    return name


_OF_TORCH = ("torch_device", "compile_backend")
_NOT_OF_SCENES = (*_OF_TORCH, "jobs", "backend")


def without_torch_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _OF_TORCH}


def options_of_a_run(config: pytest.Config, *, compiles: bool = False) -> dict[str, Any]:
    """Return the options of ``optest run`` by name; with ``compiles`` torch uses the compiler of the ini, if any."""
    of_ini = "" if "OPTEST_BACKEND" in environment() else config.getini("optest_backend")
    options: dict[str, Any] = {
        "backend": config.getoption("optest_backend") or of_ini,
        "torch_device": config.getoption("torch_device"),
        "compile_backend": config.getoption("compile_backend")
        or (compiles and config.getini("optest_compile_backend")),
        "bench": config.getoption("optest_bench"),
        "no_dedupe": not config.getoption("dedupe"),
        "jobs": 1,  # pytest runs one case after the other; `pytest -n` runs several
        "expectations": tuple(map(str, (*config.getini("optest_expectations"), *config.getoption("expectations")))),
        # A subfolder, so that the runs of xdist's workers are not listed as runs.
        "runs_dir": hasattr(config, "workerinput") and str(Path(resolve({})["runs_dir"], "workers")),
    }
    return {name: value for name, value in options.items() if value}
