"""The integration of scenes: their options, and ``optest ctest``. It imports no runtime."""

from __future__ import annotations

from functools import partial

from optest.guests import Command, Guest, Option

_COMMANDS = ("run", "list", "scene", "pytest")
_option = partial(Option, group="Scenes and devices", commands=_COMMANDS)
_of_driver = partial(_option, repro=True)
_choice = partial(_option, type="choice")

_PLATFORM = "Platform of scenes: cpusim … without hardware, or cuda, a2a3 … [every simulation that a scene names]"
_MAX_PARALLEL = "Processes at a time. [auto: one for each device, in a simulation no more than processors]"
_SCHEDULE = "phases: level 3 first, then level 2, runtime by runtime; backfill: one queue of all. [phases]"
_LEVEL = "Run only scenes of this level: 2 uses one device, 3 may use several."
_MANUAL = "Handling of cases that are marked manual. [exclude]"
_SKIP_GOLDEN = "Compute and compare no golden outputs, as for benchmarks: cases are unchecked."
_PROFILING = "Write a timeline of the first run of every scene to outputs/."
_DUMP = "Write the tensors that each task of a scene reads and writes to outputs/."
_BUILD = "Compile the runtime of scenes from source instead of using the built one."
_LOG_LEVEL = _of_driver(
    name="log_level",
    type="choice",
    choices=("error", "warn", "info", "debug"),
    commands=("run", "list", "scene"),  # pytest has an option of this name, which applies here, too
    help="Log level of the runtime of scenes.",
)

_HARDWARE = "Hardware that is present, as a2a3; none with a name in sim, and without it. [none]"
_IDS = "Ids of the devices: 0, 0-7, 0,2,5. [DEVICE_RANGE, 0]"
_RESOURCE = "Name of a device in RESOURCE_GROUPS. [npus]"
_REGEX = "Run only tests whose name matches, as in CTest."
_TIMEOUT = "Time limit of a test without TIMEOUT, in seconds. [300]"
_INCLUDE_DIR = "Print the folder of <optest/ctest_devices.h>, for CMake, and run nothing."
_CTEST = Command(
    name="ctest",
    function="optest.scenes.ctest:ctest_command",
    after="schema",
    short="Run a build folder's CTest tests on a platform.",
    text="""Run the tests of a CMake build folder that are for a platform, each on separate devices.

    \b
    optest ctest --test-dir build
    optest ctest --test-dir build --platform a2a3 --device 4-7 -j 8

    Without hardware these are the tests without the label requires_hardware; on a platform those with it, and with
    requires_hardware_PLATFORM. CTest assigns the devices to tests with RESOURCE_GROUPS.
    """,
    options=(
        Option(name="test_dir", default="build", metavar="DIR", completes="folder", help="CMake's folder. [build]"),
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
        _option(name="runtime", metavar="NAME", in_trends=True, help="Run only scenes of this runtime."),
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
