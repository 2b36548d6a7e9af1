"""A C library as a backend: operators called as a mapping says, on memory that is watched on all sides."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from optest.backends import BackendDriver
from optest.backends.ffi_config import FfiConfig, read_ffi_config
from optest.backends.ffi_mapping import OperatorMapping
from optest.backends.ffi_memory import CaseMemory
from optest.backends.ffi_session import Session
from optest.ffi.calls import BadCall
from optest.ffi.statuses import StatusError
from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase

__all__ = ["FfiBackend"]


class FfiBackend(BackendDriver):
    """Calls the library of ``backend_config.ffi``; docs/backends.md has its keys and the mapping's words."""

    name = "ffi"
    kind = "cpu"

    def __init__(self) -> None:
        self._sessions: dict[tuple[Any, ...], Session] = {}
        self._checks: dict[str, tuple[Check, ...]] = {}

    def problems(self, case: TestCase) -> Sequence[str]:
        return read_ffi_config(case)[1]

    def unsupported(self, case: TestCase) -> str | None:
        config, problems = read_ffi_config(case)
        return None if config is None or problems else _lack(case, config)

    def checks(self, case: TestCase) -> Sequence[Check]:
        return self._checks.get(case.key, ())

    def doctor(self) -> Sequence[str]:
        return ("calls the C library that a plan names; headers are read with pycparser",)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """Return the outputs by name.

        Raises:
            Unavailable: for a library, header, symbol or device that is not there.
            Fault: RAISED for a refusal, UNSUPPORTED where the library says that it has no such kernel, and what the
                memory shows.
        """
        self._checks = {}
        config, problems = read_ffi_config(case)
        if config is None or problems:
            raise Fault(Reason.BAD_CASE, "\n".join(problems))
        session = self._session(config)
        try:
            return self._answer(case, config, session, inputs)
        except StatusError as error:
            raise _refused(case, config, error) from None
        except BadCall as error:
            raise Fault(Reason.BAD_CASE, str(error)) from None

    def _session(self, config: FfiConfig) -> Session:
        if config.identity not in self._sessions:
            self._sessions[config.identity] = Session(config)
        return self._sessions[config.identity]

    def _answer(self, case: TestCase, config: FfiConfig, session: Session, inputs: Sequence[Any]) -> Mapping[str, Any]:
        entry = config.mapping.operators[case.descriptor.name]
        operator = session.operator(case.descriptor.name)
        memory = CaseMemory(entry, _given(case, inputs), _output_specs(case, config, entry))
        attributes = _attribute_values(case, entry)
        with session.described(operator, memory.specs(), attributes) as descriptor:
            memory.take_workspace(session.workspace_bytes(operator, descriptor))
            calls = {**attributes, "descriptor": descriptor, "stream": None, "null": None}

            def run(pointers: Mapping[str, Any]) -> None:
                operator.run({**calls, **pointers})

            if case.expects_error is not None:
                return memory.outputs_if_accepted(run)
            outputs, notes = memory.outputs(run)
        self._checks = {case.key: (*memory.checks(), *notes, *_attribute_notes(case, entry))}
        return outputs


def _given(case: TestCase, inputs: Sequence[Any]) -> dict[str, Array]:
    return {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}


def _lack(case: TestCase, config: FfiConfig) -> str | None:
    """Why the mapping cannot call this case, in words."""
    mapping = config.mapping
    name = case.descriptor.name
    entry = mapping.operators.get(name)
    if entry is None:
        return f"mapping {mapping.name} has no operator {name}; it has {', '.join(mapping.operators)}"
    missing = [spec.dtype.name for spec in (*_specs(case), *case.outputs) if spec.dtype.name not in mapping.dtypes]
    if missing:
        return f"mapping {mapping.name} has no dtype {missing[0]}"
    named = entry.roles()
    start = entry.starts_as
    taken = {role.name for role in named if role.kind == "input"} | ({start.input} if start else set())
    present = {argument.name for argument in case.inputs}
    for left in sorted(present - taken):
        return f"mapping {mapping.name} does not pass the input {left} of {name}"
    for role in named:
        if role.kind == "input" and role.name not in present and not role.optional:
            return f"mapping {mapping.name} needs the input {role.name} of {name}, which the case leaves out"
    return _attribute_lack(case, entry, mapping.name)


def _specs(case: TestCase) -> list[TensorSpec]:
    return [argument.spec for argument in case.inputs]


def _attribute_lack(case: TestCase, entry: OperatorMapping, mapping: str) -> str | None:
    passed = {role.name for role in entry.roles() if role.kind == "attribute"}
    defaults = {attribute.name: attribute.default for attribute in case.descriptor.attributes}
    for name, value in case.attributes.items():
        if name not in passed and value != defaults.get(name):
            return f"mapping {mapping} does not pass the attribute {name} of {case.descriptor.name}, which is {value!r}"
        if name in passed and not isinstance(value, (int, float)):
            return f"the attribute {name} is {value!r}, but mapping {mapping} passes a number"
    return None


def _attribute_values(case: TestCase, entry: OperatorMapping) -> dict[str, Any]:
    """The attributes by role, as the C types that the mapping states."""
    instead: Mapping[str, float] = {}
    if entry.starts_as is not None and entry.starts_as.input not in {argument.name for argument in case.inputs}:
        instead = entry.starts_as.without
    made: dict[str, Any] = {}
    for role in entry.roles():
        if role.kind == "attribute":
            value = instead.get(role.name, case.attributes[role.name])
            made[role.key] = float(value) if role.type in ("float", "double") else value
    return made


def _attribute_notes(case: TestCase, entry: OperatorMapping) -> list[Check]:
    """A note for every attribute that C's float cannot hold, since the reference computes with the number itself."""
    found = []
    for role in entry.roles():
        if role.kind == "attribute" and role.type == "float":
            value = float(case.attributes[role.name])
            narrow = ctypes.c_float(value).value
            if narrow != value == value:
                detail = (
                    f"{role.name} is {value!r}, but C takes a float: {narrow!r}; the reference computes with the former"
                )
                found.append(Check(name="attributes as stated", state=CheckState.NOTE, detail=detail))
    return found


def _output_specs(case: TestCase, config: FfiConfig, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """The outputs' layouts: dense unless the case says otherwise.

    A call that should be refused may have no output that follows from its inputs; it gets one like the input that the
    output starts as, or like the first input.
    """
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    specs = dict(zip(names, case.outputs, strict=True))
    if not specs and case.expects_error is not None:
        like = {argument.name: argument.spec for argument in case.inputs}
        start = entry.starts_as
        first = like.get(start.input) if start else None
        spec = first or next(iter(like.values()))
        dense = TensorSpec(dtype=spec.dtype, shape=spec.shape)
        specs = {role.name: dense for role in entry.roles() if role.kind == "output"}
    if not specs:
        raise Fault(Reason.UNSUPPORTED, "the shapes of the outputs are not known; state them under `shapes:`")
    for name, strides, offset in config.layouts:
        specs[name] = TensorSpec(dtype=specs[name].dtype, shape=specs[name].shape, strides=strides, offset=offset)
    return specs


def _refused(case: TestCase, config: FfiConfig, error: StatusError) -> Fault:
    if case.expects_error is None and error.name in config.mapping.unsupported:
        return Fault(Reason.UNSUPPORTED, str(error))
    details = {
        "exception": f"{type(error).__name__}: {error}",
        "exception_types": [each.__name__ for each in type(error).__mro__],
        "function": error.function,
        "status": error.name or error.code,
    }
    return Fault(Reason.RAISED, f"the library refused: {error}", details=details)
