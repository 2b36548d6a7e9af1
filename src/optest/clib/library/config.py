"""What ``backend_config.ffi`` may say, read with everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from optest.backends.sections import SectionReader
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.clib.library.requests import NO_REQUEST, CallRequest, read_call
from optest.clib.library.unknown_names import unknown_names
from optest.errors import UsageError
from optest.settings import infini_root
from optest.spec import Numerics, TensorSpec, TestCase

__all__ = ["FfiConfig", "is_shared_object", "read_ffi_config"]

_KEYS = (
    *("library", "headers", "mapping", "profile", "device", "outputs"),
    *("call", "guard", "threads", "sanitizer", "invariant", "probes", "session"),
)
_GUARDS = ("heap", "pages")
_SANITIZERS = ("asan",)
_PROBES = ("all", "guards")
_LAYOUT_KEYS = ("strides", "offset")
_DEFAULTS = Numerics()


@dataclass(frozen=True, slots=True, kw_only=True)
class FfiConfig:
    """Which library, how it is called, on which device.

    ``root`` is the folder that ``library`` names, else ``objects`` are its files, else the library's own place.
    ``layouts`` are the outputs' strides and offset by name, in elements; an output without one is dense. ``call`` is
    what is done otherwise in the call. ``guard`` is where buffers lie: on the ``heap`` or against ``pages`` that nobody
    may touch, None for both in turns. ``threads`` are the numbers of threads that have to agree, () for the library's
    own; ``sanitizer`` is the one that the library was built with; ``invariant`` promises the same bits for every number
    and alignment. ``probes`` says how often a case is called: ``all`` of them, or once between ``guards``.
    ``session`` makes what the library did wrong when its device was selected a fault of this case; other cases note it.
    ``numerics`` are what the mapping declares of the device, one object for all that declare the same.
    """

    mapping: LibraryMapping
    mapping_file: Path
    device: str
    device_number: int
    headers: tuple[str, ...]
    root: str | None = None
    objects: tuple[str, ...] = ()
    layouts: tuple[tuple[str, tuple[int, ...] | None, int], ...] = ()
    call: CallRequest = NO_REQUEST
    guard: str | None = None
    threads: tuple[int, ...] = ()
    sanitizer: str | None = None
    invariant: bool = False
    probes: str = "all"
    session: bool = False
    numerics: Numerics = _DEFAULTS

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two cases have to share to share a loaded library."""
        return (self.mapping_file, self.device, self.headers, self.root, self.objects)


def read_ffi_config(case: TestCase, section: str = "ffi") -> tuple[FfiConfig | None, list[str]]:
    """Return ``backend_config.<section>`` of a case and what is wrong with it; None if it cannot be used."""
    key = (
        case.descriptor.name,
        case.base_dir,
        case.outputs,
        case.expects_error is None,
        section,
        _text_of(case, section),
    )
    if (known := _read.get(key)) is not None:
        return known, []
    reader = _Reader(case, section)
    config = reader.config()
    if config is None or reader.problems:
        return config, reader.problems
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


def _text_of(case: TestCase, section: str) -> str:
    return repr(case.backend_config.get(section))


class _Reader(SectionReader):
    def __init__(self, case: TestCase, section: str) -> None:
        super().__init__(case, section, "'library', 'headers', 'mapping' and 'device'")

    def config(self) -> FfiConfig | None:
        self.unknown_keys(self.section, _KEYS)
        root, objects = self._library()
        layouts = self._layouts()
        call = read_call(self.case, self.section.get("call", {}), self.say)
        guard = self._choice("guard", _GUARDS)
        threads = self._threads()
        sanitizer = self._choice("sanitizer", _SANITIZERS)
        invariant = self._flag("invariant")
        probes = self._choice("probes", _PROBES) or "all"
        session = self._flag("session")
        file, mapping = self._mapping()
        if mapping is None:
            return None
        headers = self._headers(root, bool(objects), mapping)
        device, number = self._device(mapping)
        if self.problems:
            return None
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
            guard=guard,
            threads=threads,
            sanitizer=sanitizer,
            invariant=invariant,
            probes=probes,
            session=session,
            numerics=_declared(device, tuple(mapping.numerics.get(device, {}).items())),
        )

    def _absolute(self, text: str) -> str:
        return str(Path(self.case.base_dir, Path(text).expanduser()).absolute())

    def _object(self, text: str) -> str:
        """A bare name of a shared object that is no file here is left to the system's loader."""
        path = self._absolute(text)
        return text if "/" not in text and not Path(path).exists() else path

    def _library(self) -> tuple[str | None, tuple[str, ...]]:
        """The folder, or the files; whether they are there is found out when the library is loaded."""
        stated = self.section.get("library")
        if stated is None:
            return None, ()
        if isinstance(stated, str) and stated:
            return (None, (self._object(stated),)) if is_shared_object(stated) else (self._absolute(stated), ())
        if isinstance(stated, (list, tuple)) and stated and all(isinstance(each, str) and each for each in stated):
            return None, tuple(self._object(each) if is_shared_object(each) or "/" in each else each for each in stated)
        self.say("library", f"is {stated!r}, but should be a folder, or a list of shared objects")
        return None, ()

    def _headers(self, root: str | None, has_objects: bool, mapping: LibraryMapping) -> tuple[str, ...]:
        """Folders and files; none where the compiler looks for those that the mapping names."""
        stated = self.section.get("headers")
        if stated is None and mapping.headers:
            return ()
        if stated is None:
            if has_objects:
                self.say("headers", "is missing; it should be the folder with the library's C headers (--headers)")
            return (str(Path(root or infini_root(), "include")),)
        listed = [stated] if isinstance(stated, str) else stated
        if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) and each for each in listed):
            self.say("headers", f"is {stated!r}, but should be a folder, or a list of folders and files")
            return ()
        return tuple(map(self._absolute, listed))

    def _mapping(self) -> tuple[Path, LibraryMapping | None]:
        stated = self.section.get("mapping", self.section.get("profile"))
        if stated != self.section.get("profile", stated):
            said = (
                f"is {self.section['profile']!r}, but mapping is {stated!r}: they are two names of one thing; state one"
            )
            self.say("profile", said)
            return Path(), None
        if not isinstance(stated, str) or not stated:
            said = "is missing; it" if stated is None else f"is {stated!r}, but"
            self.say("mapping", f"{said} should be infiniop, or a file.yaml of yours (--mapping)")
            return Path(), None
        path = mapping_path(stated, self.case.base_dir).absolute()
        try:
            mapping = read_mapping(path)
        except UsageError as error:
            self.say("mapping", f"cannot be used: {error}")
            return path, None
        for entry in mapping.entries(self.case.descriptor):
            for problem in unknown_names(entry, self.case.descriptor):
                self.say("mapping", f"is wrong: {path}, operators.{self.case.descriptor.name}: {problem}")
        return path, mapping

    def _device(self, mapping: LibraryMapping) -> tuple[str, int]:
        stated = self.section.get("device", "cpu")
        if not isinstance(stated, str):
            self.say("device", f"is {stated!r}, but should be a name such as cpu")
            return "", 0
        name, _, number = stated.partition(":")
        if name not in mapping.devices or (number and not number.isdecimal()):
            known = ", ".join(mapping.devices)
            self.say("device", f"is {stated!r}, but mapping {mapping.name} has {known} (one of several: name:1)")
            return "", 0
        return name, int(number or 0)

    def _choice(self, key: str, known: Sequence[str]) -> str | None:
        stated = self.section.get(key)
        if stated is not None and stated not in known:
            self.say(key, f"is {stated!r}, but should be {' or '.join(known)}")
            return None
        return stated

    def _flag(self, key: str) -> bool:
        stated = self.section.get(key, False)
        if not isinstance(stated, bool):
            self.say(key, f"is {stated!r}, but should be true or false")
        return stated is True

    def _threads(self) -> tuple[int, ...]:
        stated = self.section.get("threads", ())
        numbers = [stated] if type(stated) is int else stated
        if not isinstance(numbers, (list, tuple)) or any(type(each) is not int or each < 1 for each in numbers):
            self.say("threads", f"is {stated!r}, but should be a list of numbers of threads such as [1, 2]")
            return ()
        return tuple(dict.fromkeys(numbers))

    def _layouts(self) -> tuple[tuple[str, tuple[int, ...] | None, int], ...]:
        stated = self.section.get("outputs", {})
        names = self.case.descriptor.tensors.outputs
        if not isinstance(stated, Mapping):
            self.say("outputs", f"is {stated!r}, but should be a map such as {{{names[0]}: {{strides: [8, 1]}}}}")
            return ()
        found: list[Any] = []
        for name, layout in stated.items():
            key = f"outputs.{name}"
            if name not in names:
                self.say(key, f"is no output of {self.case.descriptor.name}, which has {', '.join(names)}")
            elif not isinstance(layout, Mapping) or not set(layout) <= set(_LAYOUT_KEYS):
                self.say(key, f"is {layout!r}, but should be a map with {' and '.join(_LAYOUT_KEYS)}")
            else:
                found += self._layout(key, name, layout)
        return tuple(found)

    def _layout(
        self, key: str, name: str, layout: Mapping[str, Any]
    ) -> Sequence[tuple[str, tuple[int, ...] | None, int]]:
        strides, offset = layout.get("strides"), layout.get("offset", 0)
        numbers = [] if strides is None else strides
        if not isinstance(numbers, (list, tuple)) or any(type(each) is not int for each in (*numbers, offset)):
            self.say(key, f"is {dict(layout)!r}, but should have integers, in elements")
            return ()
        index = self.case.descriptor.tensors.outputs.index(name)
        if index < len(self.case.outputs):
            spec = self.case.outputs[index]
            try:
                TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides and tuple(strides), offset=offset)
            except ValueError as error:
                self.say(key, f"does not fit {spec}: {error}")
                return ()
        return ((name, None if strides is None else tuple(strides), offset),)


def is_shared_object(text: str) -> bool:
    """Whether a path names a shared object and no folder; its name alone says so."""
    return ".so" in Path(text).name or text.endswith((".dylib", ".dll"))
