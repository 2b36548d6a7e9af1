"""What ``backend_config.ffi`` may say, read with everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.backends.ffi_mapping import LibraryMapping, mapping_path, read_mapping, unknown_names
from optest.errors import UsageError, nearest
from optest.settings import infini_root
from optest.spec import TensorSpec, TestCase

__all__ = ["FfiConfig", "read_ffi_config"]

_KEYS = ("library", "headers", "mapping", "device", "outputs")
_LAYOUT_KEYS = ("strides", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class FfiConfig:
    """Which library, how it is called, on which device.

    ``root`` is the folder that ``library`` names, else ``objects`` are its files, else the library's own place.
    ``layouts`` are the outputs' strides and offset by name, in elements; an output without one is dense.
    """

    mapping: LibraryMapping
    mapping_file: Path
    device: str
    device_number: int
    headers: tuple[str, ...]
    root: str | None = None
    objects: tuple[str, ...] = ()
    layouts: tuple[tuple[str, tuple[int, ...] | None, int], ...] = ()

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two cases have to share to share a loaded library."""
        return (self.mapping_file, self.device, self.headers, self.root, self.objects)


def read_ffi_config(case: TestCase, section: str = "ffi") -> tuple[FfiConfig | None, list[str]]:
    """Return ``backend_config.<section>`` of a case and what is wrong with it; None if it cannot be used."""
    reader = _Reader(case, section)
    return reader.config(), reader.problems


class _Reader:
    """Collects what is wrong instead of stopping at it."""

    def __init__(self, case: TestCase, section: str) -> None:
        self.case = case
        self.where = f"backend_config.{section}"
        self.section: Mapping[str, Any] = {}
        self.problems: list[str] = []
        stated: Any = case.backend_config.get(section, {})
        if isinstance(stated, Mapping):
            self.section = stated
        else:
            self._say("", f"is {stated!r}, but should be a map with 'library', 'headers', 'mapping' and 'device'")

    def config(self) -> FfiConfig | None:
        for key in self.section:
            if key not in _KEYS:
                near = nearest(str(key), _KEYS)
                hint = f"did you mean {near!r}?" if near else f"known: {', '.join(_KEYS)}"
                self._say("", f"has the unknown key {key!r}; {hint}")
        root, objects = self._library()
        headers = self._headers(root, bool(objects))
        layouts = self._layouts()
        file, mapping = self._mapping()
        if mapping is None:
            return None
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
        )

    def _say(self, key: str, problem: str) -> None:
        self.problems.append(f"{self.where}{'.' if key else ''}{key} {problem}")

    def _absolute(self, text: str) -> str:
        return str(Path(self.case.base_dir, Path(text).expanduser()).absolute())

    def _library(self) -> tuple[str | None, tuple[str, ...]]:
        """The folder, or the files; whether they are there is found out when the library is loaded."""
        stated = self.section.get("library")
        if stated is None:
            return None, ()
        if isinstance(stated, str) and stated:
            return (None, (self._absolute(stated),)) if _is_object(stated) else (self._absolute(stated), ())
        if isinstance(stated, (list, tuple)) and stated and all(isinstance(each, str) and each for each in stated):
            return None, tuple(self._absolute(each) if _is_object(each) or "/" in each else each for each in stated)
        self._say("library", f"is {stated!r}, but should be a folder, or a list of shared objects")
        return None, ()

    def _headers(self, root: str | None, has_objects: bool) -> tuple[str, ...]:
        stated = self.section.get("headers")
        if stated is None:
            if has_objects:
                self._say("headers", "is missing; it should be the folder with the library's C headers")
            return (str(Path(root or infini_root(), "include")),)
        listed = [stated] if isinstance(stated, str) else stated
        if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) and each for each in listed):
            self._say("headers", f"is {stated!r}, but should be a folder, or a list of folders and files")
            return ()
        return tuple(map(self._absolute, listed))

    def _mapping(self) -> tuple[Path, LibraryMapping | None]:
        stated = self.section.get("mapping")
        if not isinstance(stated, str) or not stated:
            said = "is missing; it" if stated is None else f"is {stated!r}, but"
            self._say("mapping", f"{said} should be infiniop, or a file.yaml of yours")
            return Path(), None
        path = mapping_path(stated, self.case.base_dir).absolute()
        try:
            mapping = read_mapping(path)
        except UsageError as error:
            self._say("mapping", f"cannot be used: {error}")
            return path, None
        operator = mapping.operators.get(self.case.descriptor.name)
        for problem in [] if operator is None else unknown_names(operator, self.case.descriptor):
            self._say("mapping", f"is wrong: {path}, operators.{self.case.descriptor.name}: {problem}")
        return path, mapping

    def _device(self, mapping: LibraryMapping) -> tuple[str, int]:
        stated = self.section.get("device", "cpu")
        if not isinstance(stated, str):
            self._say("device", f"is {stated!r}, but should be a name such as cpu")
            return "", 0
        name, _, number = stated.partition(":")
        if name not in mapping.devices or (number and not number.isdecimal()):
            known = ", ".join(mapping.devices)
            self._say("device", f"is {stated!r}, but mapping {mapping.name} has {known} (one of several: name:1)")
            return "", 0
        return name, int(number or 0)

    def _layouts(self) -> tuple[tuple[str, tuple[int, ...] | None, int], ...]:
        stated = self.section.get("outputs", {})
        names = self.case.descriptor.tensors.outputs
        if not isinstance(stated, Mapping):
            self._say("outputs", f"is {stated!r}, but should be a map such as {{{names[0]}: {{strides: [8, 1]}}}}")
            return ()
        found: list[Any] = []
        for name, layout in stated.items():
            key = f"outputs.{name}"
            if name not in names:
                self._say(key, f"is no output of {self.case.descriptor.name}, which has {', '.join(names)}")
            elif not isinstance(layout, Mapping) or not set(layout) <= set(_LAYOUT_KEYS):
                self._say(key, f"is {layout!r}, but should be a map with {' and '.join(_LAYOUT_KEYS)}")
            else:
                found += self._layout(key, name, layout)
        return tuple(found)

    def _layout(
        self, key: str, name: str, layout: Mapping[str, Any]
    ) -> Sequence[tuple[str, tuple[int, ...] | None, int]]:
        strides, offset = layout.get("strides"), layout.get("offset", 0)
        numbers = [] if strides is None else strides
        if not isinstance(numbers, (list, tuple)) or any(type(each) is not int for each in (*numbers, offset)):
            self._say(key, f"is {dict(layout)!r}, but should have integers, in elements")
            return ()
        index = self.case.descriptor.tensors.outputs.index(name)
        if index < len(self.case.outputs):
            spec = self.case.outputs[index]
            try:
                TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides and tuple(strides), offset=offset)
            except ValueError as error:
                self._say(key, f"does not fit {spec}: {error}")
                return ()
        return ((name, None if strides is None else tuple(strides), offset),)


def _is_object(text: str) -> bool:
    return ".so" in Path(text).name or text.endswith((".dylib", ".dll"))
