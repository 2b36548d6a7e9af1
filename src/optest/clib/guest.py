"""What C libraries bring to optest: their options and ``optest ffi inspect``. Nothing of a library is read here."""

from __future__ import annotations

from functools import partial

from optest.guests import Argument, Command, Guest, Option

_option = partial(Option, repro=True, group="A C library", commands=("run", "list", "check"))
_LIBRARY = "Where the library is installed, or its shared objects. [INFINI_ROOT, ~/.infini] Repeatable."
_HEADERS = "The library's C headers. [include in its folder] Repeatable."
_MAPPING = "How operators are called in it: infiniop, or a file.yaml of yours."
_DEVICE = "Device that the library is asked on [cpu]; of scenes the ids that may be used: 0, 0-7 or 0,2,5. [0]"
_GUARD = "Where its buffers lie: between guard zones, or against pages that nobody may touch. [both in turns]"
_PROBES = "How often a case is called: under all circumstances, or once between guards if all is well. [all]"
_THREADS = "Numbers of threads with which every case has to be right. [the library's own]"
_SANITIZER = "What the library was built with: asan is AddressSanitizer."
_OPTIONS = (
    _option(name="library", repeat=True, metavar="DIR|FILE", completes="file", help=_LIBRARY),
    _option(name="headers", repeat=True, metavar="DIR|FILE", completes="file", help=_HEADERS),
    _option(
        name="mapping", flags=("--mapping", "--library-profile"), metavar="NAME|FILE", completes="file", help=_MAPPING
    ),
    _option(
        name="device",
        short="-d",
        commands=("run", "list", "check", "scene", "pytest"),
        metavar="NAME[:N]|IDS",
        help=_DEVICE,
    ),
    _option(name="guard", type="choice", choices=("heap", "pages"), help=_GUARD),
    _option(name="probes", type="choice", choices=("all", "guards"), help=_PROBES),
    _option(name="threads", metavar="N,N", help=_THREADS),
    _option(name="sanitizer", type="choice", choices=("asan",), help=_SANITIZER),
)

_INSPECT = Command(
    name="ffi inspect",
    function="optest.clib.inspect_command:inspect_command",
    group="Look at a C library.",
    after="schema",
    short="Hold a library against its headers and a mapping.",
    text="""Hold the shared objects LIB, or the folder LIB of the mapping's, against headers and mapping.

    \b
    optest ffi inspect libmine.so --headers include/
    optest ffi inspect ~/.infini --headers ~/.infini/include --mapping infiniop

    No code of the library runs, but that of one which only the system's loader finds. Exit status 1 if a function is
    missing or not what the mapping says; without a mapping, if any declared function is missing or cannot be called.
    """,
    arguments=(Argument(name="library", metavar="LIB...", repeat=True),),
    options=(
        Option(
            name="headers",
            repeat=True,
            required=True,
            metavar="DIR|FILE",
            completes="file",
            help="C headers. Repeatable.",
        ),
        Option(
            name="mapping",
            default="",
            metavar="NAME|FILE",
            completes="file",
            help="Mapping to hold against both: infiniop, cblas, FILE.",
        ),
        Option(name="as_json", flags=("--json",), type="bool", default=False, help="Print everything as JSON."),
        Option(name="signatures", type="bool", default=False, help="Print the signature of every function."),
        Option(name="write", default="", hidden=True),
    ),
)

GUEST = Guest(options=_OPTIONS, backend="ffi", commands=(_INSPECT,))
