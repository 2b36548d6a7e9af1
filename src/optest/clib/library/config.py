"""What ``backend_config.ffi`` may say: read from a case with everything that is wrong with it, and made of the command
line's options, which every case then holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from optest.backends.sections import SectionReader
from optest.clib.library.case_tensors import CallRequest, OutputLayout
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_file import is_file_name, mapping_path, read_mapping
from optest.clib.library.mapping_problems import unknown_names
from optest.clib.library.mapping_words import read_word
from optest.errors import Unavailable, UsageError
from optest.settings import infini_root
from optest.spec import Numerics, TensorSpec, TestCase

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class _Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of an output, in elements."""

    strides: tuple[int, ...] | None = None
    offset: int = 0


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    library: Text | Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)] | None = None
    headers: Text | tuple[Text, ...] | None = None
    mapping: Text | None = None
    profile: Text | None = None
    device: str = "cpu"
    outputs: Mapping[str, _Layout] = {}
    call: Mapping[str, Any] = {}
    guard: Literal["heap", "pages"] | None = None  # both in turns
    threads: Count | tuple[Count, ...] = ()
    sanitizer: Literal["asan"] | None = None
    invariant: bool = False
    probes: Literal["all", "guards"] = "all"
    session: bool = False


_MAPPING = "infiniop, or a file.yaml of yours (--mapping)"
_FORMS = {
    "library": "a folder, or a list of shared objects",
    "headers": "a folder, or a list of folders and files",
    "mapping": _MAPPING,
    "profile": _MAPPING,
    "device": "a name such as cpu",
    "outputs": "a map of outputs to strides and offset in elements, such as {out: {strides: [8, 1]}}",
    "call": "a map such as {null: [input:a]}",
    "guard": "heap or pages",
    "threads": "a list of numbers of threads such as [1, 2]",
    "sanitizer": "asan",
    "invariant": "true or false",
    "probes": "all or guards",
    "session": "true or false",
    "call.null": "a list of tensors, workspace, descriptor or handle",
    "call.null_descriptor": "a list of tensors",
    "call.workspace": "short",
    "call.alias": "a map of an output to an input",
    "call.behind": "a number of elements, such as 1, 0 or -1",
    "call.in_place": "a map of an output to an input",
    "call.dtypes": "a map of outputs to dtypes",
    "call.shapes": "a map of outputs to lists of sizes",
}
"""What each key should be, in words."""
for _kind in (_Section, CallRequest):
    msgspec.json.Decoder(_kind, dec_hook=read_word)  # known before two threads use them, as the mapping's types


@dataclass(frozen=True, slots=True, kw_only=True)
class FfiConfig:
    """Which library, how it is called, on which device; docs/c-libraries/ffi.md says what each key means.

    ``root`` is the folder that ``library`` names, else ``objects`` are its files, else the library's own place.
    ``numerics`` are what the mapping declares of the device, one object for all that declare the same. ``stated`` is
    the section itself, whose other keys are as they are stated there.
    """

    mapping: LibraryMapping
    mapping_file: Path
    device: str
    device_number: int
    headers: tuple[str, ...]
    root: str | None
    objects: tuple[str, ...]
    layouts: tuple[OutputLayout, ...]
    call: CallRequest
    threads: tuple[int, ...]
    numerics: Numerics
    stated: _Section

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two cases have to share to share a loaded library."""
        return (self.mapping_file, self.device, self.headers, self.root, self.objects)


def read_ffi_config(case: TestCase) -> tuple[FfiConfig | None, list[str]]:
    """Return ``backend_config.ffi`` of a case and what is wrong with it; None if it cannot be used."""
    text = repr(case.backend_config.get("ffi"))
    key = (case.descriptor.name, case.base_dir, case.outputs, case.expects_error is None, text)
    if (known := _read.get(key)) is not None:
        return known, []
    reader = _Reader(case)
    config = reader.config()
    if config is None or reader.problems:
        return None, reader.problems
    if len(_read) >= _MOST_READ:
        _read.clear()  # at any time, by another lane's thread, too
    _read[key] = config
    return config, []


@lru_cache(maxsize=256)
def _declared(device: str, words: tuple[tuple[str, Any], ...]) -> Numerics:
    """The same object for the same words, since laws are remembered for it."""
    return Numerics(**{"processor": "cpu" if device == "cpu" else "accelerator", **dict(words)})


_MOST_READ = 4096
_read: dict[tuple[Any, ...], FfiConfig] = {}


class _Reader(SectionReader):
    def __init__(self, case: TestCase) -> None:
        super().__init__(case, "ffi", "'library', 'headers', 'mapping' and 'device'")

    def config(self) -> FfiConfig | None:
        given = self._converted(_Section, self.section)
        root, objects = self._library(given)
        layouts = self._layouts(given.outputs)
        call = self._call(given.call)
        file, mapping = self._mapping(given)
        if mapping is None:
            return None
        headers = self._headers(given, root, bool(objects), file, mapping)
        device, number = self._device(given.device, mapping)
        return FfiConfig(
            mapping=mapping,
            mapping_file=file,
            device=device,
            device_number=number,
            headers=headers,
            root=root,
            objects=objects,
            layouts=layouts,
            call=call,
            threads=tuple(dict.fromkeys(_listed(given.threads))),
            numerics=_declared(device, tuple(mapping.numerics.get(device, {}).items())),
            stated=given,
        )

    def _converted(self, kind: type[_Kind], given: Mapping[str, Any], inside: str = "") -> _Kind:
        """The keys that are of their form; the others are reported, and left out."""
        self.unknown_keys(given, kind.__struct_fields__, inside=inside)
        read = dict(given)
        while True:
            try:
                return msgspec.convert(read, kind, dec_hook=read_word)
            except msgspec.ValidationError as error:  # noqa: PERF203 - one key after the other
                (key,) = re.findall(r" - at `\$\.(\w+)", str(error))
                place = f"{inside}.{key}" if inside else key
                self.say(place, f"is {read.pop(key)!r}, expected {_FORMS[place]}")

    def _library(self, given: _Section) -> tuple[str | None, tuple[str, ...]]:
        """The folder, or the files; whether they are there is found out when the library is loaded."""
        named, folder = given.library, self.case.base_dir
        if isinstance(named, str) and not is_shared_object(named):
            return located(named, folder), ()
        paths = _listed(named or ())
        return None, tuple(located(each, folder) if is_shared_object(each) or "/" in each else each for each in paths)

    def _headers(
        self, given: _Section, root: str | None, has_objects: bool, mapping_file: Path, mapping: LibraryMapping
    ) -> tuple[str, ...]:
        """Folders and files; none where the compiler looks for those that the mapping names. For a library that comes
        without, the header that lies beside the mapping and has its name."""
        if given.headers is not None:
            return tuple(located(each, self.case.base_dir) for each in _listed(given.headers))
        if mapping.headers:
            return ()
        include, own = Path(root or infini_root(), "include"), mapping_file.with_suffix(".h")
        if own.is_file() and (has_objects or not include.is_dir()):
            return (str(own),)
        if has_objects:
            self.say("headers", "is missing; it should be the folder with the library's C headers (--headers)")
        return (str(include),)

    def _mapping(self, given: _Section) -> tuple[Path, LibraryMapping | None]:
        name, profile = given.mapping or given.profile, given.profile
        if profile not in (None, name):
            self.say("profile", f"is {profile!r}, but mapping is {name!r}: they are two names of one thing; state one")
            return Path(), None
        if name is None:
            if not {"mapping", "profile"} & self.section.keys():
                self.say("mapping", f"is missing; it should be {_MAPPING}")
            return Path(), None
        path = mapping_path(name, self.case.base_dir).absolute()
        try:
            mapping = read_mapping(path)
        except UsageError as error:
            self.say("mapping", f"cannot be used: {error}")
            return path, None
        for entry in mapping.entries(self.case.descriptor):
            for problem in unknown_names(entry, self.case.descriptor):
                self.say("mapping", f"is wrong: {path}, operators.{self.case.descriptor.name}: {problem}")
        return path, mapping

    def _device(self, given: str, mapping: LibraryMapping) -> tuple[str, int]:
        name, _, number = given.partition(":")
        if name in mapping.devices and (number.isdecimal() or not number):
            return name, int(number or 0)
        known = ", ".join(mapping.devices)
        self.say("device", f"is {given!r}, but mapping {mapping.name} has {known} (one of several: name:1)")
        return "", 0

    def _layouts(self, given: Mapping[str, _Layout]) -> tuple[OutputLayout, ...]:
        names = self.case.descriptor.tensors.outputs
        for name, layout in given.items():
            if name not in names:
                known = ", ".join(names)
                self.say(f"outputs.{name}", f"is no output of {self.case.descriptor.name}, which has {known}")
            elif names.index(name) < len(self.case.outputs):
                spec = self.case.outputs[names.index(name)]
                try:
                    TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=layout.strides, offset=layout.offset)
                except ValueError as error:
                    self.say(f"outputs.{name}", f"does not fit {spec}: {error}")
        return tuple((name, each.strides, each.offset) for name, each in given.items())

    def _call(self, given: Mapping[str, Any]) -> CallRequest:
        lists = {key: [given[key]] for key in ("null", "null_descriptor") if isinstance(given.get(key), str)}
        request = self._converted(CallRequest, {**given, **lists}, "call")
        outputs = tuple(f"output:{name}" for name in self.case.descriptor.tensors.outputs)
        tensors = (*(f"input:{each.name}" for each in self.case.descriptor.tensors.inputs), *outputs)
        self._known("null", request.null, (*tensors, "workspace", "descriptor", "handle"))
        self._known("null_descriptor", request.null_descriptor, tensors)
        for key in ("alias", "in_place", "dtypes", "shapes"):
            self._known(key, getattr(request, key), outputs)
        for key in ("alias", "in_place"):
            self._known(key, getattr(request, key).values(), tensors)
        if request.is_wrong and self.case.expects_error is None:
            self.say(
                "call", "asks for what has to be refused, so the case should state expects_error: {type: StatusError}"
            )
        return request

    def _known(self, key: str, names: Iterable[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                self.say(f"call.{key}", f"has {name!r}, expected some of {', '.join(known)}")


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def located(text: str, folder: str = "") -> str:
    """The absolute path; a bare name of a shared object that is no file there is left to the system's loader."""
    path = Path(folder, Path(text).expanduser()).absolute()
    return text if is_shared_object(text) and "/" not in text and not path.exists() else str(path)


def is_shared_object(text: str) -> bool:
    """Whether a path names a shared object and no folder; its name alone says so."""
    return ".so" in Path(text).name or text.endswith((".dylib", ".dll"))


NAMES = ("library", "headers", "mapping", "device", "guard", "probes", "threads", "sanitizer")


def config_of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, with paths that mean the same from every folder.

    Raises:
        UsageError: for threads that are no numbers.
    """
    readers = {"library": _paths, "headers": _paths, "mapping": _mapping, "threads": _threads}
    given = {name: options[name] for name in NAMES if options.get(name)}
    return {name: readers[name](value) if name in readers else value for name, value in given.items()}


def mapping_of_options(config: Mapping[str, Any]) -> LibraryMapping | None:
    """The mapping that the options name, None if they name none.

    Raises:
        UsageError: for one that is not there or cannot be read.
    """
    name = config.get("mapping")
    return None if name is None else read_mapping(mapping_path(name, "").absolute())


def require_installed(config: Mapping[str, Any], mapping: LibraryMapping) -> None:
    """Look for the library's files without loading them: what loading does is the worker's business.

    Raises:
        Unavailable: naming the file, and how the library is named.
    """
    library = config.get("library")
    if isinstance(library, str) and not is_shared_object(library):
        if not Path(library).is_dir():
            remedy = "there is no such folder; --library names where the library is installed, or its shared objects"
            raise Unavailable(f"library {library}", remedy)
    elif library is None and not all(map(is_shared_object, mapping.library)):  # those are the system loader's
        root = infini_root()
        if not root.is_dir():
            remedy = f"neither --library nor INFINI_ROOT is given, and there is no {root}"
            raise Unavailable(f"library {mapping.name}", remedy)
    for each in _listed(library or ()):
        if Path(each).is_absolute() and is_shared_object(each) and not Path(each).is_file():
            raise Unavailable(f"library {each}", "there is no such file; --library names it, or its folder")
    for each in _listed(config.get("headers", ())):
        if not Path(each).exists():
            raise Unavailable(f"headers {each}", "there is no such folder or file; --headers names them")


def _paths(value: Any) -> str | list[str]:
    paths = [located(each) for each in _listed(value)]
    return paths[0] if len(paths) == 1 else paths


def _mapping(name: str) -> str:
    return str(Path(name).absolute()) if is_file_name(name) else name


def _threads(text: Any) -> list[int]:
    words = str(text).split(",") if not isinstance(text, (list, tuple)) else [str(each) for each in text]
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--threads is {text}, expected numbers such as 1,2")
    return [int(word) for word in words]
