"""Command-line options of the C library backend, and the declaration of ``optest ffi inspect``."""

from __future__ import annotations

from functools import partial

from optest.guests import Argument, Command, Guest, Option

_option = partial(Option, repro=True, group="A C library", commands=("run", "list", "check"))
_path_option = partial(_option, completes="file")
# Scenes and the pytest plugin select devices, too.
_DEVICE_COMMANDS = ("run", "list", "check", "scene", "pytest")
_LIBRARY = "Folder where the library is installed, or its shared objects. [INFINI_ROOT, ~/.infini] Repeatable."
_HEADERS = "The library's C headers. [the folder include of the library] Repeatable."
_MAPPING = "Mapping of operators to C functions: infiniop, or your own file.yaml."
_DEVICE = "Device to run the library on [cpu]; for scenes the allowed ids: 0, 0-7 or 0,2,5. [0]"
_GUARD = "Buffer protection: guard zones on the heap, or inaccessible pages. [alternate between both]"
_PROBES = "Calls per case: all memory checks, or one call between guard zones if it passes. [all]"
_THREADS = "Thread counts to run every case with. [the library's default]"
_SANITIZER = "Sanitizer that the library was built with: asan is AddressSanitizer."
_OPTIONS = (
    _path_option(name="library", repeat=True, metavar="DIR|FILE", help=_LIBRARY),
    _path_option(name="headers", repeat=True, metavar="DIR|FILE", help=_HEADERS),
    _path_option(name="mapping", flags=("--mapping", "--library-profile"), metavar="NAME|FILE", help=_MAPPING),
    _option(name="device", short="-d", commands=_DEVICE_COMMANDS, metavar="NAME[:N]|IDS", help=_DEVICE),
    _option(name="guard", type="choice", choices=("heap", "pages"), help=_GUARD),
    _option(name="probes", type="choice", choices=("all", "guards"), help=_PROBES),
    _option(name="threads", metavar="N,N", help=_THREADS),
    _option(name="sanitizer", type="choice", choices=("asan",), help=_SANITIZER),
)

_file_option = partial(Option, completes="file")
_COMPARED_MAPPING = "Mapping to compare with both: infiniop, cblas, FILE."
_INSPECT = Command(
    name="ffi inspect",
    function="optest.clib.library_report:inspect_command",
    group="Look at a C library.",
    after="schema",
    short="Compare a library with its headers and a mapping.",
    text="""Compare the shared objects LIB, or the mapping's libraries in the folder LIB, with headers and mapping.

    \b
    optest ffi inspect libmine.so --headers include/
    optest ffi inspect ~/.infini --headers ~/.infini/include --mapping infiniop

    No code of the library runs, except for a library that only the system's loader finds. Exit status 1 if a function
    is missing or differs from the mapping; without a mapping, if a declared function is missing or cannot be called.
    """,
    arguments=(Argument(name="library", metavar="LIB...", repeat=True),),
    options=(
        _file_option(name="headers", repeat=True, required=True, metavar="DIR|FILE", help="C headers. Repeatable."),
        _file_option(name="mapping", default="", metavar="NAME|FILE", help=_COMPARED_MAPPING),
        Option(name="as_json", flags=("--json",), type="bool", default=False, help="Print everything as JSON."),
        Option(name="signatures", type="bool", default=False, help="Print the signature of every function."),
        Option(name="write", default="", hidden=True),
    ),
)

GUEST = Guest(options=_OPTIONS, backend="ffi", commands=(_INSPECT,))
