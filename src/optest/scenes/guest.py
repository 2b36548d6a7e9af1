"""What scenes bring to optest: their options, and ``optest ctest``. Nothing of a runtime is imported here."""

from __future__ import annotations

from functools import partial

from optest.guests import Command, Guest, Option

_COMMANDS = ("run", "list", "scene", "pytest")
_option = partial(Option, group="Scenes and devices", commands=_COMMANDS)
_of_driver = partial(_option, repro=True)
_choice = partial(_option, type="choice")

_PLATFORM = "Where scenes run: cpusim … without hardware, or cuda, a2a3 … [every simulation that a scene names]"
_MAX_PARALLEL = "Processes at a time. [auto: one for each device, in a simulation no more than processors]"
_SCHEDULE = "phases: level 3 first, then level 2, runtime by runtime; backfill: one queue of all. [phases]"
_LEVEL = "Scenes of this level only: 2 uses one device, 3 may use several."
_MANUAL = "Cases that are marked manual. [exclude]"
_SKIP_GOLDEN = "Compute and compare no golden, as for benchmarks: cases are unchecked."
_PROFILING = "Write a timeline of the first round of every scene to outputs/."
_DUMP = "Write what every task of a scene reads and writes to outputs/."
_BUILD = "Compile the runtime of scenes from source in place of the one that is built."
_LOG_LEVEL = _of_driver(
    name="log_level",
    type="choice",
    choices=("error", "warn", "info", "debug"),
    commands=("run", "list", "scene"),  # pytest has one of its own, which means this, too
    help="How much the runtime of scenes logs.",
)

_HARDWARE = "What hardware is there, as a2a3; none with a name in sim, and without one. [none]"
_IDS = "Ids of the devices: 0, 0-7, 0,2,5. [DEVICE_RANGE, 0]"
_RESOURCE = "What RESOURCE_GROUPS call one. [npus]"
_REGEX = "Only tests whose name matches, as CTest matches."
_TIMEOUT = "Deadline of a test that states no TIMEOUT. [300]"
_INCLUDE_DIR = "Print the folder of <optest/ctest_devices.h>, for CMake, and run nothing."
_CTEST = Command(
    name="ctest",
    function="optest.scenes.ctest:ctest_command",
    after="schema",
    short="Run a build folder's CTest tests on a platform.",
    text="""Run the tests of a CMake build folder that are for a platform, each on devices of its own.

    \b
    optest ctest --test-dir build
    optest ctest --test-dir build --platform a2a3 --device 4-7 -j 8

    Without hardware these are the tests without the label requires_hardware; on a platform those with it, and with
    requires_hardware_PLATFORM. CTest gives the devices to tests with RESOURCE_GROUPS.
    """,
    options=(
        Option(name="test_dir", default="build", metavar="DIR", completes="folder", help="Where CMake built. [build]"),
        Option(name="platform", metavar="NAME", help=_HARDWARE),
        Option(name="devices", flags=("--device",), metavar="IDS", help=_IDS),
        Option(name="resource_type", default="npus", help=_RESOURCE),
        Option(name="jobs", flags=("-j", "--jobs"), type="int", minimum=1, help="Tests at a time. [processors]"),
        Option(name="regex", flags=("-R",), metavar="REGEX", help=_REGEX),
        Option(name="timeout", type="float", minimum=1, default=300.0, help=_TIMEOUT),
        Option(name="include_dir", type="bool", default=False, help=_INCLUDE_DIR),
    ),
)

GUEST = Guest(
    options=(
        _option(name="platform", short="-p", metavar="NAME", in_trends=True, help=_PLATFORM),
        _option(name="max_parallel", default="auto", metavar="N", help=_MAX_PARALLEL),
        _choice(name="schedule", choices=("phases", "backfill"), default="phases", help=_SCHEDULE),
        _option(name="runtime", metavar="NAME", in_trends=True, help="Scenes of this runtime only."),
        _choice(name="level", choices=("2", "3"), in_trends=True, help=_LEVEL),
        _choice(name="manual", choices=("exclude", "include", "only"), default="exclude", in_trends=True, help=_MANUAL),
        _option(name="skip_golden", type="bool", default=False, in_trends=True, help=_SKIP_GOLDEN),
        _of_driver(name="enable_profiling", type="bool", default=False, help=_PROFILING),
        _of_driver(name="dump_tensor", type="bool", default=False, help=_DUMP),
        _of_driver(name="build", type="bool", default=False, help=_BUILD),
        _LOG_LEVEL,
    ),
    commands=(_CTEST,),
)
