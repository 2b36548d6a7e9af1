"""What cases share that differ in the values of their tensors alone: configuration, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from optest.clib.library.config import FfiConfig, read_ffi_config
from optest.clib.library.direct_cases import bound_case, direct_lack, narrowed, specs_of_case
from optest.clib.library.operands import lack, notes_of_attributes
from optest.spec import Check, Fault, Reason, TensorSpec, TestCase

__all__ = ["CaseKind", "CaseKinds"]

_MOST_KEPT = 4096
_MOST_LATEST = 128
_packed = msgspec.msgpack.Encoder().encode


class CaseKind:
    """Cases of one operator with the same specs, attributes and configuration; ``config`` is None, or not to be used,
    where there are ``problems``."""

    __slots__ = ("_lack", "_notes", "config", "descriptor", "names", "problems")

    def __init__(self, case: TestCase, config: FfiConfig | None, problems: Sequence[str]) -> None:
        self.config = config
        self.problems = problems
        self.descriptor = case.descriptor
        self.names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
        self._lack: tuple[str | None] | None = None
        self._notes: tuple[Check, ...] | None = None

    def required(self) -> FfiConfig:
        """The configuration.

        Raises:
            Fault: BAD_CASE if there is none that can be used.
        """
        if self.config is None or self.problems:
            raise Fault(Reason.BAD_CASE, "\n".join(self.problems))
        return self.config

    def lack(self, case: TestCase) -> str | None:
        """Why the mapping cannot call a case of this kind, in words; None if it can, or nobody knows."""
        if self._lack is None:
            self._lack = (self._found_lack(case),)
        return self._lack[0]

    def notes_of_attributes(self, case: TestCase) -> tuple[Check, ...]:
        """What is to be said of the attributes that C gets; there is a configuration."""
        if self._notes is None:
            self._notes = tuple(self._made_notes(case))
        return self._notes

    def _found_lack(self, case: TestCase) -> str | None:
        config = self.config
        if config is None or self.problems:
            return None
        if case.descriptor.name in config.mapping.direct:
            return direct_lack(case, config.mapping, config.layouts, config.call)
        return lack(case, config.mapping)

    def _made_notes(self, case: TestCase) -> Sequence[Check]:
        config = self.config
        assert config is not None
        if case.descriptor.name not in config.mapping.direct:
            return notes_of_attributes(case, config.mapping)
        return narrowed(bound_case(case, config.mapping, specs_of_case(case, config.layouts)).entry, case)


class CaseKinds:
    """Finds the kind of a case by value; a descriptor counts by identity, and is kept alive.

    A case is looked up several times, among others of its group, so the latest are remembered, each for as long as its
    mappings hold what they held.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], CaseKind] = {}
        self._latest: dict[int, tuple[TestCase, Any, str, CaseKind]] = {}

    def of(self, case: TestCase) -> CaseKind:
        section, attributes = _section_of(case), repr(case.attributes)
        known = self._latest.get(id(case))
        if known is not None and known[0] is case and known[1] == section and known[2] == attributes:
            return known[3]
        kind = self._found(case, section, attributes)
        if len(self._latest) >= _MOST_LATEST:
            self._latest.clear()
        self._latest[id(case)] = (case, section, attributes, kind)
        return kind

    def _found(self, case: TestCase, section: Any, attributes: str) -> CaseKind:
        key = (
            section,
            attributes,
            id(case.descriptor),
            case.base_dir,
            case.expects_error is None,
            tuple([(each.name, *_told(each.spec)) for each in case.inputs]),
            tuple([_told(each) for each in case.outputs]),
        )
        kind = self._kinds.get(key)
        if kind is None:
            kind = CaseKind(case, *read_ffi_config(case))
            if kind.config is not None and not kind.problems:
                if len(self._kinds) >= _MOST_KEPT:
                    self._kinds.clear()
                self._kinds[key] = kind
        return kind


def _section_of(case: TestCase) -> bytes | str:
    """What the case states under ``backend_config.ffi``, as something that is equal where that is."""
    section = case.backend_config.get("ffi")
    try:
        return _packed(section)
    except (TypeError, OverflowError, UnicodeEncodeError):  # what somebody put there by hand
        return repr(section)


def _told(spec: TensorSpec) -> tuple[Any, ...]:
    """A spec as what is quickly hashed; its dtype is known by its name."""
    return spec.dtype.name, spec.shape, spec.strides, spec.offset
