"""What scenes bring to optest: their options. Nothing of a runtime is imported here."""

from __future__ import annotations

from optest.guests import Guest, Option

__all__ = ["GUEST"]

_COMMANDS = ("run", "list", "scene", "pytest")

_SCENES = "Scenes and devices"

GUEST = Guest(
    options=(
        Option(
            name="platform",
            flags=("--platform",),
            short="-p",
            group=_SCENES,
            metavar="NAME",
            commands=_COMMANDS,
            in_trends=True,
            help="Where scenes run: cpusim … without hardware, or cuda, a2a3 … [every simulation that a scene names]",
        ),
        Option(
            name="max_parallel",
            flags=("--max-parallel",),
            default="auto",
            group=_SCENES,
            metavar="N",
            commands=_COMMANDS,
            help="Processes at a time. [auto: one for each device, in a simulation no more than processors]",
        ),
        Option(
            name="schedule",
            flags=("--schedule",),
            type="choice",
            choices=("phases", "backfill"),
            default="phases",
            group=_SCENES,
            commands=_COMMANDS,
            help="phases: level 3 first, then level 2, runtime by runtime; backfill: one queue of all. [phases]",
        ),
        Option(
            name="runtime",
            flags=("--runtime",),
            group=_SCENES,
            metavar="NAME",
            commands=_COMMANDS,
            in_trends=True,
            help="Scenes of this runtime only.",
        ),
        Option(
            name="level",
            flags=("--level",),
            type="choice",
            choices=("2", "3"),
            group=_SCENES,
            commands=_COMMANDS,
            in_trends=True,
            help="Scenes of this level only: 2 uses one device, 3 may use several.",
        ),
        Option(
            name="manual",
            flags=("--manual",),
            type="choice",
            choices=("exclude", "include", "only"),
            default="exclude",
            group=_SCENES,
            commands=_COMMANDS,
            in_trends=True,
            help="Cases that are marked manual. [exclude]",
        ),
        Option(
            name="skip_golden",
            flags=("--skip-golden",),
            type="bool",
            default=False,
            group=_SCENES,
            commands=_COMMANDS,
            in_trends=True,
            help="Compute and compare no golden, as for benchmarks: cases are unchecked.",
        ),
        Option(
            name="enable_profiling",
            flags=("--enable-profiling",),
            type="bool",
            default=False,
            group=_SCENES,
            repro=True,
            commands=_COMMANDS,
            help="Write a timeline of the first round of every scene to outputs/.",
        ),
        Option(
            name="dump_tensor",
            flags=("--dump-tensor",),
            type="bool",
            default=False,
            group=_SCENES,
            repro=True,
            commands=_COMMANDS,
            help="Write what every task of a scene reads and writes to outputs/.",
        ),
        Option(
            name="build",
            flags=("--build",),
            type="bool",
            default=False,
            group=_SCENES,
            repro=True,
            commands=_COMMANDS,
            help="Compile the runtime of scenes from source in place of the one that is built.",
        ),
        Option(
            name="log_level",
            flags=("--log-level",),
            type="choice",
            choices=("error", "warn", "info", "debug"),
            group=_SCENES,
            repro=True,
            commands=("run", "list", "scene"),  # pytest has one of its own, which means this, too
            help="How much the runtime of scenes logs.",
        ),
    ),
)
