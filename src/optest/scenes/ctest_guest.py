"""``optest ctest``, declared."""

from __future__ import annotations

from optest.guests import Command, Guest, Option

__all__ = ["GUEST"]

_TEST_DIR = "The folder that CMake built in. [build]"
_PLATFORM = "What hardware is there, as a2a3; none with a name in sim, and without one. [none]"
_DEVICE = "Ids of the devices: 0, 0-7, 0,2,5. [DEVICE_RANGE, 0]"
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
        Option(
            name="test_dir", flags=("--test-dir",), default="build", metavar="DIR", completes="folder", help=_TEST_DIR
        ),
        Option(name="platform", flags=("--platform",), metavar="NAME", help=_PLATFORM),
        Option(name="devices", flags=("--device",), metavar="IDS", help=_DEVICE),
        Option(
            name="resource_type",
            flags=("--resource-type",),
            default="npus",
            help="What RESOURCE_GROUPS call one. [npus]",
        ),
        Option(name="jobs", flags=("-j", "--jobs"), type="int", minimum=1, help="Tests at a time. [processors]"),
        Option(name="regex", flags=("-R",), metavar="REGEX", help="Only tests whose name matches, as CTest matches."),
        Option(name="timeout", flags=("--timeout",), type="float", minimum=1, default=300.0, help=_TIMEOUT),
        Option(name="include_dir", flags=("--include-dir",), type="bool", default=False, help=_INCLUDE_DIR),
    ),
)

GUEST = Guest(commands=(_CTEST,))
