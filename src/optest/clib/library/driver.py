"""The ``ffi`` backend: calls a C library's operators as a mapping describes, on guarded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from optest.backends import BackendDriver, ExtraOutput, PreparedCall
from optest.clib.ffi.calls import BadCall, StatusError
from optest.clib.library.attributes import attribute_values, notes_of_attributes
from optest.clib.library.binding import BoundCase, bind_case, rebind, unsupported_reason
from optest.clib.library.case_tensors import generate_inputs
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
from optest.clib.library.samples import session_sample, with_samples_of_c
from optest.clib.library.sanitizer import environment_of, require_runtime
from optest.clib.library.session import Session, header_of_config
from optest.clib.library.subject import Subject, other_calls
from optest.clib.probing.library_probe import LibraryProbe
from optest.memory.buffer_sets import BufferPool
from optest.registry import is_installed
from optest.spec import Check, CheckState, Fault, Numerics, OperatorDescriptor, Reason, Sample, TensorSpec, TestCase


class FfiBackend(BackendDriver):
    """Backend that calls the library of ``backend_config.ffi``; docs/c-libraries describes its keys and the mapping."""

    name = "ffi"
    kind = "cpu"
    guards_memory = True
    options = NAMES

    def __init__(self) -> None:
        self._libraries: dict[tuple[Any, ...], tuple[Session, LibraryProbe]] = {}
        self._pool = BufferPool()
        self._checks: dict[str, tuple[Check, ...]] = {}
        self._extra_outputs: dict[str, Sequence[ExtraOutput]] = {}
        self._config: dict[str, Any] = {}
        self._has_session_sample = False

    def configure(self, options: Mapping[str, Any]) -> None:
        """Store the options, load nothing; raise UsageError for a bad mapping, Unavailable for missing files."""
        self._config = config_of_options(options)
        self._has_session_sample = False
        mapping = mapping_of_options(self._config)
        if mapping is not None:
            require_installed(self._config, mapping)

    def case_options(self) -> Mapping[str, Any]:
        return self._config

    def ready_for_check(self) -> str | None:
        if "mapping" in self._config:
            return None
        return "no mapping is set, so the library's functions are unknown\n  for example: --mapping infiniop"

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        mapping = mapping_of_options(self._config)
        if mapping is None or mapping.entries(descriptor):
            return None
        return f"not in mapping {mapping.name}"

    def samples(self, own: Sequence[tuple[Sample, TestCase]]) -> Sequence[Sample]:
        mapping = mapping_of_options(self._config)
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
        return unsupported_reason(case, config.mapping, config.layouts, config.call)

    def numerics_of(self, case: TestCase) -> Numerics:
        config, _ = read_ffi_config(case)
        return self.numerics if config is None else config.numerics

    def checks(self, case: TestCase) -> Sequence[Check]:
        return self._checks.get(case.key, ())

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:
        return self._extra_outputs.get(case.key, ())

    def environment(self, cases: Sequence[TestCase]) -> Mapping[str, str]:
        configs = [config for case in cases if (config := read_ffi_config(case)[0]) is not None]
        return environment_of(configs)

    def before_fork(self, case: TestCase) -> None:
        """Read mapping and headers once in the parent; the process that runs the case loads the library."""
        header_of_config(_require_ffi_config(case))

    def doctor(self) -> Sequence[str]:
        reads = "are read with pycparser" if is_installed("pycparser") else "cannot be read: pip install pycparser"
        return (f"calls the C library that a plan names; headers {reads}",)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any] | Sequence[Any]:
        """Return the outputs by name.

        Raises:
            Unavailable: for a missing library, header, symbol or device.
            Fault: RAISED for a refused call, UNSUPPORTED for a missing kernel, and faults that memory checks detect.
        """
        self._checks, self._extra_outputs = {}, {}  # only of the latest case
        config = _require_ffi_config(case)
        try:
            return self._run_case(case, config, inputs)
        except StatusError as error:
            if case.expects_error is not None:
                _, probe = self._session_and_probe(config)
                probe.count_leaks_of_refusals(case.key, error, lambda: self._run_case(case, config, inputs))
            raise _fault_of_status(case, config, error) from None
        except BadCall as error:  # C never receives such a value (-1 for a size_t), so it cannot refuse it
            reason = Reason.BAD_CASE if case.expects_error is None else Reason.UNSUPPORTED
            raise Fault(reason, str(error)) from None

    def blame(self, case: TestCase, inputs: Sequence[Any]) -> None:
        """Repeat a failed case with all memory checks; raise the fault of a check or of a changed condition."""
        config, _ = read_ffi_config(case)
        if config is None:
            return
        session, probe = self._session_and_probe(config)
        with (
            suppress(StatusError),  # the library accepted the call under evaluation
            self._bound_call(case, config, session, inputs) as (_, memory, subject),
        ):
            probe.explain_wrong_outputs(case.key, memory, subject, config)

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """Yield a prepared call on memory placed as in a test; between calls nothing is poisoned or checked."""
        config = _require_ffi_config(case)
        session, _ = self._session_and_probe(config)
        with self._bound_call(case, config, session, inputs) as (_, memory, subject):
            placed: dict[str, Any] = {}

            def run(pointers: Mapping[str, Any]) -> None:
                placed.update(pointers)
                subject.run(pointers)
                session.synchronize()

            # The first call fills ``placed`` and checks the arguments.
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
    def _bound_call(
        self, case: TestCase, config: FfiConfig, session: Session, inputs: Sequence[Any]
    ) -> Iterator[tuple[BoundCase, CaseMemory, Subject]]:
        """Yield the bound case, its memory, and its call without pointers; C objects exist within the block."""
        mapping = config.mapping
        try:
            bound = bind_case(case, mapping, config.layouts, config.call)
        except Gap as gap:
            raise Fault(Reason.UNSUPPORTED, f"mapping {mapping.name}: {gap}") from None
        entry = bound.entry
        arrays = {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}
        memory = CaseMemory(
            entry,
            {**arrays, **generate_inputs(case, entry, bound.specs)},
            {key.partition(":")[2]: spec for key, spec in bound.specs.items() if spec and key.startswith("output:")},
            request=config.call,
            pool=self._pool,
            alignment=mapping.alignment,
        )
        placed = {key: spec for key, spec in memory.specs().items() if spec is not None}
        attributes = attribute_values(entry, case)
        by_value = [role.name for role in entry.read.roles if role.kind == "scalar"]
        scalars = {name: arrays[name].reshape(-1)[0].item() for name in by_value}

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

    def _session_and_probe(self, config: FfiConfig) -> tuple[Session, LibraryProbe]:
        """Return the session and probe of a library and device; load the library at the first use."""
        if config.identity not in self._libraries:
            require_runtime(config)  # before loading, which ends the process without the runtime
            self._libraries[config.identity] = (Session(config), LibraryProbe(config))
        return self._libraries[config.identity]

    def _run_case(self, case: TestCase, config: FfiConfig, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """Run all probes of a case, or of a wrong call; return the outputs, store checks and extra outputs."""
        names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
        session, probe = self._session_and_probe(config)
        if config.section.session and session.fault is not None:
            raise session.fault
        with self._bound_call(case, config, session, inputs) as (bound, memory, subject):
            if case.expects_error is not None:
                try:
                    accepted = probe.probe_refusal(memory, subject)
                finally:
                    memory.release()
                shared = [name for name in names if name not in accepted]
                if shared:
                    message = f"the library returned success, but output {shared[0]} shares memory with an input"
                    raise Fault(Reason.NOT_REFUSED, message)
                return {name: accepted[name] for name in names or accepted}
            result = probe.probe_case(case.key, memory, subject, config)
        notes = notes_of_attributes(bound.entry, case)
        if session.fault is not None:
            notes.append(Check(name="device selection", state=CheckState.NOTE, detail=str(session.fault)))
        self._checks = {case.key: (*result.checks, *notes)}
        # The library may have outputs that the operator lacks.
        of_operator = [{name: extra.outputs[name] for name in names} for extra in result.further]
        answers = zip(result.further, of_operator, strict=True)
        self._extra_outputs = {case.key: [replace(extra, outputs=outputs) for extra, outputs in answers]}
        return {name: result.outputs[name] for name in names}


def _require_ffi_config(case: TestCase) -> FfiConfig:
    """Return the case's configuration; raise a BAD_CASE fault if it cannot be used."""
    config, problems = read_ffi_config(case)
    if config is None or problems:
        raise Fault(Reason.BAD_CASE, "\n".join(problems))
    return config


def _fault_of_status(case: TestCase, config: FfiConfig, error: StatusError) -> Fault:
    """Return UNSUPPORTED for a status that the mapping declares as a missing kernel, else RAISED."""
    mapping, statuses = config.mapping, (error.name, error.code)
    is_gap = any(status in mapping.no_operator for status in statuses)
    if case.expects_error is None and not is_gap:
        bound = bind_case(case, mapping, config.layouts, config.call)
        tensors = [spec for spec in bound.specs.values() if spec is not None]
        is_gap = any(mapping.is_unsupported(bound.entry, status, tensors) for status in statuses)
    if is_gap:
        return Fault(Reason.UNSUPPORTED, str(error))
    details = {
        "exception": f"{type(error).__name__}: {error}",
        "exception_types": [kind.__name__ for kind in type(error).__mro__],
        "function": error.function,
        "status": error.name or error.code,
    }
    return Fault(Reason.RAISED, f"the library refused: {error}", details=details)
