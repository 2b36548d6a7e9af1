"""A C library as a backend: operators called as a mapping says, on memory that is watched on all sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from optest.backends import BackendDriver, FurtherAnswer, PreparedCall
from optest.clib.ffi.calls import BadCall, StatusError
from optest.clib.library.attributes import attribute_values, notes_of_attributes
from optest.clib.library.binding import BoundCase, bind_case, lack, rebind
from optest.clib.library.case_tensors import made_inputs
from optest.clib.library.config import (
    NAMES,
    FfiConfig,
    config_of_options,
    mapping_of_options,
    read_ffi_config,
    require_installed,
)
from optest.clib.library.layouts import Gap
from optest.clib.library.memory import CaseMemory
from optest.clib.library.places import PlacePool
from optest.clib.library.samples import session_sample, with_samples_of_c
from optest.clib.library.sanitizer import environment_of, require_runtime
from optest.clib.library.session import Session, header_of_config
from optest.clib.library.subject import Subject, other_calls
from optest.clib.probing.library_probe import LibraryProbe
from optest.registry import is_installed
from optest.spec import Check, CheckState, Fault, Numerics, OperatorDescriptor, Reason, Sample, TensorSpec, TestCase


class FfiBackend(BackendDriver):
    """Calls the library of ``backend_config.ffi``; docs/c-libraries has its keys and the mapping's words."""

    name = "ffi"
    kind = "cpu"
    guards_memory = True
    options = NAMES

    def __init__(self) -> None:
        self._libraries: dict[tuple[Any, ...], tuple[Session, LibraryProbe]] = {}
        self._pool = PlacePool()
        self._checks: dict[str, tuple[Check, ...]] = {}
        self._further: dict[str, Sequence[FurtherAnswer]] = {}
        self._stated: dict[str, Any] = {}
        self._has_session_sample = False

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take where the library lies and how it is asked; nothing is loaded.

        Raises:
            UsageError: for a mapping that cannot be read.
            Unavailable: for files that are not there.
        """
        self._stated = config_of_options(options)
        self._has_session_sample = False
        mapping = mapping_of_options(self._stated)
        if mapping is not None:
            require_installed(self._stated, mapping)

    def case_options(self) -> Mapping[str, Any]:
        return self._stated

    def ready_for_check(self) -> str | None:
        if "mapping" in self._stated:
            return None
        return "no mapping is named, so nobody knows how the library is called\n  for example: --mapping infiniop"

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        mapping = mapping_of_options(self._stated)
        if mapping is None or mapping.entries(descriptor):
            return None
        return f"not in mapping {mapping.name}"

    def samples(self, own: Sequence[tuple[Sample, TestCase]]) -> Sequence[Sample]:
        mapping = mapping_of_options(self._stated)
        if mapping is None:
            return [sample for sample, _ in own]
        samples = with_samples_of_c(own, mapping, self.unsupported)
        if not self._has_session_sample:
            session = session_sample(own, mapping, self.unsupported)
            self._has_session_sample = session is not None
            samples += [] if session is None else [session]
        return samples

    def problems(self, case: TestCase) -> Sequence[str]:
        return read_ffi_config(case)[1]

    def unsupported(self, case: TestCase) -> str | None:
        config, problems = read_ffi_config(case)
        if config is None or problems:
            return None
        return lack(case, config.mapping, config.layouts, config.call)

    def numerics_of(self, case: TestCase) -> Numerics:
        config, _ = read_ffi_config(case)
        return self.numerics if config is None else config.numerics

    def checks(self, case: TestCase) -> Sequence[Check]:
        return self._checks.get(case.key, ())

    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        return self._further.get(case.key, ())

    def environment(self, cases: Sequence[TestCase]) -> Mapping[str, str]:
        configs = [config for case in cases if (config := read_ffi_config(case)[0]) is not None]
        return environment_of(configs)

    def before_fork(self, case: TestCase) -> None:
        """Read mapping and headers; the library is loaded by whoever runs the case."""
        header_of_config(_required(case))

    def doctor(self) -> Sequence[str]:
        reads = "are read with pycparser" if is_installed("pycparser") else "cannot be read: pip install pycparser"
        return (f"calls the C library that a plan names; headers {reads}",)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any] | Sequence[Any]:
        """Return the outputs by name, or in order.

        Raises:
            Unavailable: for a library, header, symbol or device that is not there.
            Fault: RAISED for a refusal, UNSUPPORTED where the library says that it has no such kernel, and what the
                memory shows.
        """
        self._checks, self._further = {}, {}
        config = _required(case)
        try:
            return self._answer(case, config, inputs)
        except StatusError as error:
            if case.expects_error is not None:
                _, probe = self._library(config)
                probe.count_leaks_of_refusals(case.key, error, lambda: self._answer(case, config, inputs))
            raise _refused(case, config, error) from None
        except BadCall as error:  # -1 for a size_t cannot be refused: C never sees it
            reason = Reason.BAD_CASE if case.expects_error is None else Reason.UNSUPPORTED
            raise Fault(reason, str(error)) from None

    def blame(self, case: TestCase, inputs: Sequence[Any]) -> None:
        """Look closer at a case whose answer is wrong: call it under all circumstances, if it was called once.

        Raises:
            Fault: for what the memory shows, or a circumstance that makes a difference.
        """
        config, _ = read_ffi_config(case)
        if config is None:
            return
        session, probe = self._library(config)
        with (
            suppress(StatusError),  # it accepted the call that is judged
            self._called(case, config, session, inputs) as (_, memory, subject),
        ):
            probe.blame(case.key, memory, subject, config)

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """C's function on memory that is where it is for a test; nothing is poisoned or looked at between the calls."""
        config = _required(case)
        session, _ = self._library(config)
        with self._called(case, config, session, inputs) as (_, memory, subject):
            placed: dict[str, Any] = {}

            def run(pointers: Mapping[str, Any]) -> None:
                placed.update(pointers)
                subject.run(pointers)
                session.synchronize()

            memory.outputs_if_accepted(run)
            try:
                yield PreparedCall(
                    call=subject.ready(placed),
                    outputs=lambda: memory.outputs_if_accepted(run),
                    synchronize=session.synchronize,
                )
            finally:
                memory.release()

    @contextmanager
    def _called(
        self, case: TestCase, config: FfiConfig, session: Session, inputs: Sequence[Any]
    ) -> Iterator[tuple[BoundCase, CaseMemory, Subject]]:
        """The entry that answers a case, its memory, and the call with everything but the pointers into that memory;
        what the call needs is there while inside."""
        mapping = config.mapping
        try:
            bound = bind_case(case, mapping, config.layouts, config.call)
        except Gap as gap:
            raise Fault(Reason.UNSUPPORTED, f"mapping {mapping.name}: {gap}") from None
        entry = bound.entry
        given = {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}
        memory = CaseMemory(
            entry,
            {**given, **made_inputs(case, entry, bound.specs)},
            {key.partition(":")[2]: spec for key, spec in bound.specs.items() if spec and key.startswith("output:")},
            request=config.call,
            pool=self._pool,
            alignment=mapping.alignment,
        )
        placed = {key: spec for key, spec in memory.specs().items() if spec is not None}
        attributes = attribute_values(entry, case)
        scalars = {
            each.name: given[each.name].reshape(-1)[0].item() for each in entry.read.roles if each.kind == "scalar"
        }

        def call_of(specs: Mapping[str, TensorSpec], values: Mapping[str, Any]) -> Subject | None:
            try:
                return session.call(rebind(bound, specs, case, mapping), values, scalars)
            except Gap:
                return None

        subject = session.call(rebind(bound, placed, case, mapping), attributes, scalars, config.call)
        subject.others = other_calls(call_of, placed, attributes)
        with subject.renewed():
            memory.take_workspace(subject.workspace_bytes)
            yield bound, memory, subject

    def _library(self, config: FfiConfig) -> tuple[Session, LibraryProbe]:
        """The same for all that name the same library and device."""
        if config.identity not in self._libraries:
            require_runtime(config)
            self._libraries[config.identity] = (Session(config), LibraryProbe(config))
        return self._libraries[config.identity]

    def _answer(self, case: TestCase, config: FfiConfig, inputs: Sequence[Any]) -> Mapping[str, Any]:
        names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
        session, probe = self._library(config)
        if config.stated.session and session.fault is not None:
            raise session.fault
        with self._called(case, config, session, inputs) as (bound, memory, subject):
            if case.expects_error is not None:
                try:
                    accepted = probe.probe_refusal(memory, subject)
                finally:
                    memory.release()
                shared = [name for name in names if name not in accepted]
                if shared:
                    message = f"the library returned success, though output {shared[0]} lies in the memory of an input"
                    raise Fault(Reason.NOT_REFUSED, message)
                return {name: accepted[name] for name in names or accepted}
            result = probe.probe_case(case.key, memory, subject, config)
        notes = notes_of_attributes(bound.entry, case)
        if session.fault is not None:
            notes.append(Check(name="device selection", state=CheckState.NOTE, detail=str(session.fault)))
        self._checks = {case.key: (*result.checks, *notes)}
        of_operator = [{name: each.outputs[name] for name in names} for each in result.further]  # C may have others
        answers = zip(result.further, of_operator, strict=True)
        self._further = {case.key: [replace(each, outputs=outputs) for each, outputs in answers]}
        return {name: result.outputs[name] for name in names}


def _required(case: TestCase) -> FfiConfig:
    """The configuration; BAD_CASE if there is none that can be used."""
    config, problems = read_ffi_config(case)
    if config is None or problems:
        raise Fault(Reason.BAD_CASE, "\n".join(problems))
    return config


def _refused(case: TestCase, config: FfiConfig, error: StatusError) -> Fault:
    mapping, statuses = config.mapping, (error.name, error.code)
    is_gap = any(each in mapping.no_operator for each in statuses)
    if case.expects_error is None and not is_gap:
        bound = bind_case(case, mapping, config.layouts, config.call)
        tensors = [spec for spec in bound.specs.values() if spec is not None]
        is_gap = any(mapping.is_unsupported(bound.entry, each, tensors) for each in statuses)
    if is_gap:
        return Fault(Reason.UNSUPPORTED, str(error))
    details = {
        "exception": f"{type(error).__name__}: {error}",
        "exception_types": [each.__name__ for each in type(error).__mro__],
        "function": error.function,
        "status": error.name or error.code,
    }
    return Fault(Reason.RAISED, f"the library refused: {error}", details=details)
