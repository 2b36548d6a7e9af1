"""The options of the plug-in, and what of them a run of optest is told."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping
from typing import Any

import pytest

from optest.api.collecting import runs_of_workers
from optest.settings import environment
from optest.suites import TIER_NAMES

__all__ = ["add_options", "beside_the_backend", "options_of_a_run"]


def add_options(parser: pytest.Parser) -> None:
    """Those of the RFC, ``--torch-device``, ``--show-skipped``, and the ini's ``optest_models``."""
    group = parser.getgroup("optest", "operator cases (optest)")
    group.addoption("--model", action="append", default=[], metavar="NAME", help="run this model only; repeatable")
    group.addoption("--dedupe", dest="dedupe", action="store_true", default=True, help="share executions (default)")
    group.addoption("--no-dedupe", dest="dedupe", action="store_false", help="run every case by itself")
    group.addoption("--list-models", action="store_true", help="list the models and run nothing")
    group.addoption("--list-cases", action="store_true", help="list model::name::op and run nothing")
    group.addoption("--show-skipped", action="store_true", help="say why cases were skipped")
    group.addoption(
        "--compile-backend",
        default=environment().get("TEST_COMPILE_BACKEND") or "inductor",
        type=_option_value,
        metavar="NAME",
        help="backend of torch.compile; eager compiles nothing (default: $TEST_COMPILE_BACKEND or inductor)",
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
    group.addoption(
        "--optest-tier",
        default="",
        choices=TIER_NAMES,
        help="of suites that files define (define_backend_tests); default: the ini's optest_tier, else the file's",
    )
    group.addoption(
        "--optest-bench", action="store_true", default=False, help="time every case that passes; the table stands last"
    )
    group.addoption(
        "--platform",
        default=None,
        metavar="NAME",
        help="where tests run: cpusim … without hardware, or cuda, a2a3 …: tests that need it run there, others skip",
    )
    parser.addini("optest_platforms", "further names for --platform", type="args", default=[])
    parser.addini("optest_tier", "tier of suites: smoke, parity or full", default="")
    parser.addini("optest_expectations", "files of what is known of the cases", type="paths", default=[])
    parser.addini("optest_models", "files and folders of model cases and plans", type="paths", default=[])


def _option_value(name: str) -> str:
    """A shell's variable that is empty would switch compiling off or ask the CPU, with nobody told."""
    if not name:
        raise ArgumentTypeError("it is empty; eager compiles nothing, and cpu is a device")
    return name


_OF_TORCH = ("torch_device", "compile_backend")


def beside_the_backend(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that any backend takes."""
    return {name: value for name, value in options.items() if name not in _OF_TORCH}


def options_of_a_run(config: pytest.Config) -> dict[str, Any]:
    """Options of ``optest run`` by name. Cases are asked for one after the other: ``pytest -n`` is the way to more."""
    given: dict[str, Any] = {
        "torch_device": config.getoption("torch_device"),
        "compile_backend": config.getoption("compile_backend"),
        "bench": config.getoption("optest_bench"),
        "no_dedupe": not config.getoption("dedupe"),
        "jobs": 1,
        "expectations": tuple(map(str, (*config.getini("optest_expectations"), *config.getoption("expectations")))),
        "runs_dir": hasattr(config, "workerinput") and str(runs_of_workers()),
    }
    return {name: value for name, value in given.items() if value}
