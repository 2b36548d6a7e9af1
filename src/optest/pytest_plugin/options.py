"""The options of the plug-in, and what of them a run of optest is told."""

from __future__ import annotations

import logging
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from optest.api.collecting import PLAN_NAMES, runs_of_workers
from optest.settings import OPTIONS, Option, environment
from optest.suites import TIER_NAMES


def add_options(parser: pytest.Parser) -> None:
    """Those of the RFC, those that name backend and plug-ins, and the keys of the ini."""
    group = parser.getgroup("optest", "operator cases (optest)")
    group.addoption("--model", action="append", default=[], metavar="NAME", help="run this model only; repeatable")
    group.addoption("--dedupe", dest="dedupe", action="store_true", default=True, help="share executions (default)")
    group.addoption("--no-dedupe", dest="dedupe", action="store_false", help="run every case by itself")
    group.addoption("--list-models", action="store_true", help="list the models and run nothing")
    group.addoption("--list-cases", action="store_true", help="list model::name::op and run nothing")
    group.addoption("--show-skipped", action="store_true", help="say why cases were skipped")
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
        help="known differences, known wrong data and skips, each with its reason; beside the ini's; repeatable",
    )
    group.addoption("--optest-backend", default=None, type=_option_value, metavar="NAME", help="backend of the cases")
    group.addoption(
        "--optest-plugins", action="append", default=[], metavar="MODULE", help="module to load for them; repeatable"
    )
    group.addoption(
        "--optest-tier",
        default="",
        choices=TIER_NAMES,
        help="of suites that files define (define_backend_tests); default: the ini's optest_tier, else the file's",
    )
    group.addoption(
        "--optest-bench", action="store_true", default=False, help="time every case that passes; the table stands last"
    )
    parser.addini("optest_backend", "backend of the cases, unless OPTEST_BACKEND names one", default="")
    parser.addini("optest_plugins", "modules to load for the cases, as OPTEST_PLUGINS does", type="args", default=[])
    parser.addini("optest_plans", "how plans are called", type="args", default=list(PLAN_NAMES))
    parser.addini("optest_platforms", "further names for --platform", type="args", default=[])
    parser.addini("optest_compile_backend", "backend of torch.compile for model cases, eager without", default="")
    parser.addini("optest_tier", "tier of suites: smoke, parity or full", default="")
    parser.addini("optest_expectations", "files of what is known of the cases", type="paths", default=[])
    parser.addini("optest_models", "files and folders of model cases and plans", type="paths", default=[])


_OF_SCENES = [option for option in OPTIONS if "pytest" in option.commands]


def add_options_of_scenes(parser: pytest.Parser) -> None:
    """Those of the table that scenes have everywhere, but what a project or another plug-in has registered: that is
    the project's, and its value counts."""
    taken = {name for group in parser._groups for option in group.options for name in option.names()}
    group = parser.getgroup("optest scenes", "scenes and devices (optest)")
    for option in _OF_SCENES:
        if taken.isdisjoint(option.flags):
            group.addoption(*option.flags, dest=option.name, default=None, help=option.help, **_keywords(option))


def _keywords(option: Option) -> dict[str, Any]:
    if option.type == "bool":
        return {"action": "store_true"}
    keywords: dict[str, Any] = {"action": "append" if option.repeat else "store", "metavar": option.metavar or None}
    if option.type == "int":
        keywords["type"] = int
    return keywords | ({"choices": option.choices} if option.type == "choice" else {})


def without_values(arguments: Sequence[str]) -> list[str]:
    """The command line as long as these options are not known: their values would be taken for files."""
    flags = {flag for option in _OF_SCENES if option.type != "bool" for flag in option.flags}
    return [each for before, each in zip(["", *arguments], arguments, strict=False) if before not in flags]


def stated(config: pytest.Config, name: str) -> Any:
    """The value of an option of scenes, also where the project registered it under another name; None without one."""
    (option,) = (each for each in _OF_SCENES if each.name == name)
    return config.getoption(option.flags[0], config.getoption(name, None))


def options_of_scenes(config: pytest.Config) -> dict[str, Any]:
    """Options of ``optest run`` by name, for scenes; those that choose between cases count for the session."""
    given = {each.name: stated(config, each.name) for each in _OF_SCENES}
    for name in ("runtime", "level", "manual", "case"):
        given.pop(name)
    given["log_level"] = level_of_a_runtime(config.getoption("log_level"))
    given |= {name: value for name, value in options_of_a_run(config).items() if name not in _NOT_OF_SCENES}
    return {name: value for name, value in given.items() if value is not None}


def level_of_a_runtime(text: str | None) -> str | None:
    """What pytest's ``--log-level`` means to a runtime: the nearest level that logs no more."""
    if text is None:
        return None
    number = int(text) if text.isdecimal() else getattr(logging, text.upper(), logging.WARNING)
    levels = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn"}
    return next((name for level, name in levels.items() if number <= level), "error")


def _option_value(name: str) -> str:
    """A shell's variable that is empty would switch compiling off or ask the CPU, with nobody told."""
    if not name:
        raise ArgumentTypeError("it is empty; eager compiles nothing, and cpu is a device")
    return name


_OF_TORCH = ("torch_device", "compile_backend")
_NOT_OF_SCENES = (*_OF_TORCH, "jobs", "backend")


def beside_the_backend(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that any backend takes."""
    return {name: value for name, value in options.items() if name not in _OF_TORCH}


def options_of_a_run(config: pytest.Config, *, compiles: bool = False) -> dict[str, Any]:
    """Options of ``optest run`` by name; with ``compiles`` calls of torch use the compiler of the ini, if any.

    Cases are asked for one after the other: ``pytest -n`` is the way to more.
    """
    of_the_ini = "" if "OPTEST_BACKEND" in environment() else config.getini("optest_backend")
    given: dict[str, Any] = {
        "backend": config.getoption("optest_backend") or of_the_ini,
        "torch_device": config.getoption("torch_device"),
        "compile_backend": config.getoption("compile_backend")
        or (compiles and config.getini("optest_compile_backend")),
        "bench": config.getoption("optest_bench"),
        "no_dedupe": not config.getoption("dedupe"),
        "jobs": 1,
        "expectations": tuple(map(str, (*config.getini("optest_expectations"), *config.getoption("expectations")))),
        "runs_dir": hasattr(config, "workerinput") and str(runs_of_workers()),
    }
    return {name: value for name, value in given.items() if value}
