"""What scenes bring to optest: their options. Nothing of a runtime is imported here."""

from __future__ import annotations

from functools import partial

from optest.guests import Guest, Option

__all__ = ["GUEST"]

_COMMANDS = ("run", "list", "scene", "pytest")

_option = partial(Option, group="Scenes and devices", commands=_COMMANDS)

GUEST = Guest(
    options=(
        _option(
            name="platform",
            metavar="NAME",
            in_trends=True,
            help="Where scenes run: cpusim … without hardware, or cuda, a2a3 … [every simulation that a scene names]",
        ),
        _option(
            name="max_parallel",
            default="auto",
            metavar="N",
            help="Processes at a time. [auto: one for each device, in a simulation no more than processors]",
        ),
        _option(
            name="schedule",
            type="choice",
            choices=("phases", "backfill"),
            default="phases",
            help="phases: level 3 first, then level 2, runtime by runtime; backfill: one queue of all. [phases]",
        ),
        _option(
            name="runtime",
            metavar="NAME",
            in_trends=True,
            help="Scenes of this runtime only.",
        ),
        _option(
            name="level",
            type="choice",
            choices=("2", "3"),
            in_trends=True,
            help="Scenes of this level only: 2 uses one device, 3 may use several.",
        ),
        _option(
            name="manual",
            type="choice",
            choices=("exclude", "include", "only"),
            default="exclude",
            in_trends=True,
            help="Cases that are marked manual. [exclude]",
        ),
        _option(
            name="skip_golden",
            type="bool",
            default=False,
            in_trends=True,
            help="Compute and compare no golden, as for benchmarks: cases are unchecked.",
        ),
        _option(
            name="enable_profiling",
            type="bool",
            default=False,
            repro=True,
            help="Write a timeline of the first round of every scene to outputs/.",
        ),
        _option(
            name="dump_tensor",
            type="bool",
            default=False,
            repro=True,
            help="Write what every task of a scene reads and writes to outputs/.",
        ),
        _option(
            name="build",
            type="bool",
            default=False,
            repro=True,
            help="Compile the runtime of scenes from source in place of the one that is built.",
        ),
        _option(
            name="log_level",
            type="choice",
            choices=("error", "warn", "info", "debug"),
            repro=True,
            commands=("run", "list", "scene"),
            help="How much the runtime of scenes logs.",
        ),
    ),
)
