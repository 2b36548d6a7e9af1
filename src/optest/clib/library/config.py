"""``backend_config.ffi``: read from a case with all of its problems, or built from command-line options."""

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
    """Layout of an output, in elements."""

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
    guard: Literal["heap", "pages"] | None = None  # None alternates
    threads: Count | tuple[Count, ...] = ()
    sanitizer: Literal["asan"] | None = None
    invariant: bool = False
    probes: Literal["all", "guards"] = "all"
    session: bool = False


_MAPPING = "infiniop, or your own file.yaml (--mapping)"
# Expected form of each key, for messages.
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
for _kind in (_Section, CallRequest):
    msgspec.json.Decoder(_kind, dec_hook=read_word)  # initialised before two threads use them: see mapping.py


@dataclass(frozen=True, slots=True, kw_only=True)
class FfiConfig:
    """Library, mapping and device of a case; docs/c-libraries/ffi.md describes the keys."""

    mapping: LibraryMapping
    mapping_file: Path
    device: str
    device_number: int
    headers: tuple[str, ...]
    root: str | None  # folder of the library; None if objects are set, or for the mapping's default
    objects: tuple[str, ...]  # files of the library
    layouts: tuple[OutputLayout, ...]
    call: CallRequest
    threads: tuple[int, ...]
    numerics: Numerics  # one shared object for equal declarations
    section: _Section  # the section, with all other keys

    @property
    def identity(self) -> tuple[Any, ...]:
        """Key that two cases share if they use the same loaded library."""
        return (self.mapping_file, self.device, self.headers, self.root, self.objects)


def read_ffi_config(case: TestCase) -> tuple[FfiConfig | None, list[str]]:
    """Return the ``backend_config.ffi`` of a case, None if it cannot be used, and its problems."""
    text = repr(case.backend_config.get("ffi"))
    key = (case.descriptor.name, case.base_dir, case.outputs, case.expects_error is None, text)
    if (known := _configs.get(key)) is not None:
        return known, []
    reader = _Reader(case, "ffi", "'library', 'headers', 'mapping' and 'device'")
    config = reader.config()
    if config is None or reader.problems:
        return None, reader.problems
    if len(_configs) >= _MAX_CONFIGS:
        _configs.clear()  # at once: another worker slot's thread may use it
    _configs[key] = config
    return config, []


# Cached by identity: tolerance rules are remembered per Numerics object.
@lru_cache(maxsize=256)
def _numerics_of_device(device: str, words: tuple[tuple[str, Any], ...]) -> Numerics:
    """Return the numerics of a device, the same object for the same words."""
    return Numerics(**{"processor": "cpu" if device == "cpu" else "accelerator", **dict(words)})


_MAX_CONFIGS = 4096
_configs: dict[tuple[Any, ...], FfiConfig] = {}


class _Reader(SectionReader):
    def config(self) -> FfiConfig | None:
        """Return the configuration, None without a usable mapping; report problems of all keys."""
        section = self._convert_section(_Section, self.section)
        root, objects = self._library(section)
        layouts = self._layouts(section.outputs)
        call = self._call(section.call)
        file, mapping = self._mapping(section)
        if mapping is None:
            return None
        headers = self._headers(section, root, bool(objects), file, mapping)
        device, number = self._device(section.device, mapping)
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
            threads=tuple(dict.fromkeys(_as_tuple(section.threads))),
            numerics=_numerics_of_device(device, tuple(mapping.numerics.get(device, {}).items())),
            section=section,
        )

    def _convert_section(self, kind: type[_Kind], keys: Mapping[str, Any], inside: str = "") -> _Kind:
        """Convert a section to ``kind``; report and drop keys of the wrong form."""
        self.unknown_keys(keys, kind.__struct_fields__, inside=inside)
        fitting = dict(keys)
        while True:
            try:
                return msgspec.convert(fitting, kind, dec_hook=read_word)
            except msgspec.ValidationError as error:  # noqa: PERF203 - one key after the other
                (key,) = re.findall(r" - at `\$\.(\w+)", str(error))
                path = f"{inside}.{key}" if inside else key
                self.add_problem(path, f"is {fitting.pop(key)!r}, expected {_FORMS[path]}")

    def _library(self, section: _Section) -> tuple[str | None, tuple[str, ...]]:
        """Return the library's folder, or its files; existence is checked when the library is loaded."""
        named, folder = section.library, self.case.base_dir
        if isinstance(named, str) and not is_shared_object(named):
            return located(named, folder), ()
        paths = _as_tuple(named or ())
        return None, tuple(located(path, folder) if is_shared_object(path) or "/" in path else path for path in paths)

    def _headers(
        self, section: _Section, root: str | None, has_objects: bool, mapping_file: Path, mapping: LibraryMapping
    ) -> tuple[str, ...]:
        """Return header folders and files; empty if the mapping names its headers."""
        if section.headers is not None:
            return tuple(located(path, self.case.base_dir) for path in _as_tuple(section.headers))
        if mapping.headers:
            return ()
        # A library without headers may have one next to its mapping, with the mapping's name.
        include, header = Path(root or infini_root(), "include"), mapping_file.with_suffix(".h")
        if header.is_file() and (has_objects or not include.is_dir()):
            return (str(header),)
        if has_objects:
            self.add_problem("headers", "is missing, expected the folder with the library's C headers (--headers)")
        return (str(include),)

    def _mapping(self, section: _Section) -> tuple[Path, LibraryMapping | None]:
        """Return the path of the mapping and the mapping; report an unusable one and return None for it."""
        name, profile = section.mapping or section.profile, section.profile
        if profile not in (None, name):
            self.add_problem(
                "profile", f"is {profile!r}, but mapping is {name!r}; both name the mapping, so write only one"
            )
            return Path(), None
        if name is None:
            if not {"mapping", "profile"} & self.section.keys():
                self.add_problem("mapping", f"is missing, expected {_MAPPING}")
            return Path(), None
        path = mapping_path(name, self.case.base_dir).absolute()
        try:
            mapping = read_mapping(path)
        except UsageError as error:
            self.add_problem("mapping", f"cannot be used: {error}")
            return path, None
        for entry in mapping.entries(self.case.descriptor):
            for problem in unknown_names(entry, self.case.descriptor):
                self.add_problem("mapping", f"is wrong: {path}, operators.{self.case.descriptor.name}: {problem}")
        return path, mapping

    def _device(self, device: str, mapping: LibraryMapping) -> tuple[str, int]:
        """Split ``name:number``; report a device that the mapping lacks."""
        name, _, number = device.partition(":")
        if name in mapping.devices and (number.isdecimal() or not number):
            return name, int(number or 0)
        known = ", ".join(mapping.devices)
        self.add_problem("device", f"is {device!r}, expected one of mapping {mapping.name}: {known} (or name:1)")
        return "", 0

    def _layouts(self, layouts: Mapping[str, _Layout]) -> tuple[OutputLayout, ...]:
        """Return the output layouts; report unknown outputs and layouts that do not fit them."""
        names = self.case.descriptor.tensors.outputs
        for name, layout in layouts.items():
            if name not in names:
                known = ", ".join(names)
                self.add_problem(f"outputs.{name}", f"is no output of {self.case.descriptor.name}, which has {known}")
            elif names.index(name) < len(self.case.outputs):
                spec = self.case.outputs[names.index(name)]
                try:
                    TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=layout.strides, offset=layout.offset)
                except ValueError as error:
                    self.add_problem(f"outputs.{name}", f"does not fit {spec}: {error}")
        return tuple((name, layout.strides, layout.offset) for name, layout in layouts.items())

    def _call(self, keys: Mapping[str, Any]) -> CallRequest:
        """Return the requested deviations; report unknown tensors and a wrong call without expected error."""
        lists = {key: [keys[key]] for key in ("null", "null_descriptor") if isinstance(keys.get(key), str)}
        request = self._convert_section(CallRequest, {**keys, **lists}, "call")
        outputs = tuple(f"output:{name}" for name in self.case.descriptor.tensors.outputs)
        tensors = (*(f"input:{arg.name}" for arg in self.case.descriptor.tensors.inputs), *outputs)
        self._require_known("null", request.null, (*tensors, "workspace", "descriptor", "handle"))
        self._require_known("null_descriptor", request.null_descriptor, tensors)
        for key in ("alias", "in_place", "dtypes", "shapes"):
            self._require_known(key, getattr(request, key), outputs)
        for key in ("alias", "in_place"):
            self._require_known(key, getattr(request, key).values(), tensors)
        if request.is_wrong and self.case.expects_error is None:
            self.add_problem("call", "requests a wrong call: add expects_error: {type: StatusError} to the case")
        return request

    def _require_known(self, key: str, names: Iterable[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                self.add_problem(f"call.{key}", f"has {name!r}, expected some of {', '.join(known)}")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def located(text: str, folder: str = "") -> str:
    """Return the absolute path; leave the bare name of a missing shared object to the system's loader."""
    path = Path(folder, Path(text).expanduser()).absolute()
    return text if is_shared_object(text) and "/" not in text and not path.exists() else str(path)


def is_shared_object(text: str) -> bool:
    """Return whether a path, by its name, is a shared object rather than a folder."""
    return re.search(r"\.so(\.\d+)*$", text) is not None or text.lower().endswith((".dylib", ".dll"))


NAMES = ("library", "headers", "mapping", "device", "guard", "probes", "threads", "sanitizer")


def config_of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set, with absolute paths; raise UsageError for wrong thread counts."""
    readers = {"library": _absolute_paths, "headers": _absolute_paths, "mapping": _mapping, "threads": _thread_counts}
    selected = {name: options[name] for name in NAMES if options.get(name)}
    return {name: readers[name](value) if name in readers else value for name, value in selected.items()}


def mapping_of_options(config: Mapping[str, Any]) -> LibraryMapping | None:
    """Return the mapping that the options name, or None; raise UsageError if it cannot be read."""
    name = config.get("mapping")
    return None if name is None else read_mapping(mapping_path(name, "").absolute())


def require_installed(config: Mapping[str, Any], mapping: LibraryMapping) -> None:
    """Raise Unavailable with the option to set if a library file is missing; the worker loads the library later."""
    library = config.get("library")
    if isinstance(library, str) and not is_shared_object(library):
        if not Path(library).is_dir():
            remedy = "there is no such folder; set --library to the library's folder or shared objects"
            raise Unavailable(f"library {library}", remedy)
    elif library is None and not all(map(is_shared_object, mapping.library)):  # the system's loader finds those
        root = infini_root()
        if not root.is_dir():
            remedy = f"neither --library nor INFINI_ROOT is set, and {root} does not exist"
            raise Unavailable(f"library {mapping.name}", remedy)
    for x in _as_tuple(library or ()):
        if Path(x).is_absolute() and is_shared_object(x) and not Path(x).is_file():
            raise Unavailable(f"library {x}", "there is no such file; set --library to the file or its folder")
    for path in _as_tuple(config.get("headers", ())):
        if not Path(path).exists():
            raise Unavailable(f"headers {path}", "no such folder or file; set --headers to the library's headers")


def _absolute_paths(value: Any) -> str | list[str]:
    paths = [located(path) for path in _as_tuple(value)]
    return paths[0] if len(paths) == 1 else paths


def _mapping(name: str) -> str:
    return str(Path(name).absolute()) if is_file_name(name) else name


def _thread_counts(text: Any) -> list[int]:
    words = str(text).split(",") if not isinstance(text, (list, tuple)) else [str(word) for word in text]
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--threads is {text}, expected numbers such as 1,2")
    return [int(word) for word in words]
