"""A C library as a backend: operators called as a mapping says, on memory that is watched on all sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from optest.backends import BackendDriver, FurtherAnswer, PreparedCall
from optest.clib.ffi.calls import BadCall
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.config import FfiConfig, read_ffi_config
from optest.clib.library.descriptors import BoundCall
from optest.clib.library.direct_calls import DirectFunction
from optest.clib.library.direct_cases import (
    as_requested,
    attribute_values,
    bound_case,
    direct_lack,
    narrowed,
    specs_of_case,
)
from optest.clib.library.direct_session import DirectSession
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping import OperatorMapping
from optest.clib.library.memory import CaseMemory
from optest.clib.library.operands import (
    as_c_counts,
    lack,
    made_inputs,
    notes_of_attributes,
    outputs_for_a_refusal,
    outputs_of_c,
    values,
)
from optest.clib.library.options import NAMES, config_of_options, mapping_of_options, require_installed
from optest.clib.library.places import PlacePool
from optest.clib.library.requests import NO_REQUEST, CallRequest
from optest.clib.library.samples import session_sample, with_samples_of_c
from optest.clib.library.sanitizer import environment_of, require_runtime
from optest.clib.library.session import Session
from optest.clib.library.subject import Described, DirectSubject, Subject
from optest.clib.probing.library_probe import LibraryProbe
from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Numerics, OperatorDescriptor, Reason, Sample, TensorSpec, TestCase

__all__ = ["FfiBackend"]

_MOST_ASKED = 4096


class FfiBackend(BackendDriver):
    """Calls the library of ``backend_config.ffi``; docs/c-libraries has its keys and the mapping's words."""

    name = "ffi"
    kind = "cpu"
    guards_memory = True
    options = NAMES

    def __init__(self) -> None:
        self._sessions: dict[tuple[Any, ...], Session | DirectSession] = {}
        self._asked: dict[tuple[Any, int], tuple[FfiConfig, Session | DirectSession, LibraryProbe]] = {}
        self._probes: dict[tuple[Any, ...], LibraryProbe] = {}
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
        if mapping is None or descriptor.name in mapping.names:
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
        if case.descriptor.name in config.mapping.direct:
            return direct_lack(case, config.mapping, config.layouts, config.call)
        return lack(case, config.mapping, config.layouts)

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

    def doctor(self) -> Sequence[str]:
        return ("calls the C library that a plan names; headers are read with pycparser",)

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
            return self._answer(case, config, self._session(case, config), inputs)
        except StatusError as error:
            if case.expects_error is not None:
                probe = self._library_probe(case, config)
                session = self._session(case, config)
                probe.count_leaks_of_refusals(case.key, error, lambda: self._answer(case, config, session, inputs))
            raise _refused(case, config, error) from None
        except BadCall as error:
            raise Fault(Reason.BAD_CASE, str(error)) from None

    def blame(self, case: TestCase, inputs: Sequence[Any]) -> None:
        """Look closer at a case whose answer is wrong: call it under all circumstances, if it was called once.

        Raises:
            Fault: for what the memory shows, or a circumstance that makes a difference.
        """
        config, _ = read_ffi_config(case)
        if config is None:
            return
        with (
            suppress(StatusError),  # it accepted the call that is judged
            self._described(case, config, self._session(case, config), inputs) as (memory, _, _, subject),
        ):
            self._library_probe(case, config).blame(case.key, memory, subject, config)

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """C's function on memory that is where it is for a test; nothing is poisoned or looked at between the calls."""
        config = _required(case)
        session = self._session(case, config)
        with self._described(case, config, session, inputs) as (memory, call, passed, _):
            placed: dict[str, Any] = {}

            def run(pointers: Mapping[str, Any]) -> None:
                placed.update(pointers)
                call({**passed, **pointers})
                session.synchronize()

            memory.outputs_if_accepted(run)
            try:
                yield PreparedCall(
                    call=call.ready({**passed, **placed}),
                    outputs=lambda: memory.outputs_if_accepted(run),
                    synchronize=session.synchronize,
                )
            finally:
                memory.release()

    @contextmanager
    def _described(
        self, case: TestCase, config: FfiConfig, session: Session | DirectSession, inputs: Sequence[Any]
    ) -> Iterator[tuple[CaseMemory, BoundCall | DirectFunction, dict[str, Any], Subject]]:
        """The memory of a case, the call, the values of its arguments beside the pointers into that memory, and both
        as what can be called again."""
        if isinstance(session, DirectSession):
            memory, direct, other = self._direct(case, config, session, inputs)
            with direct.alive():
                memory.take_workspace(direct.workspace_bytes)
                yield memory, direct, {}, DirectSubject(direct, other)
            return
        name = config.mapping.key(case.descriptor)
        if name is None:
            raise Fault(Reason.UNSUPPORTED, f"mapping {config.mapping.name} has no operator {case.descriptor.name}")
        entry, operator = config.mapping.operators[name], session.operator(name)
        given = _given(case, inputs)
        outputs = _output_specs(case, config, entry)
        made = made_inputs(case, entry, given, outputs)
        memory = CaseMemory(
            entry, {**given, **made}, outputs, request=config.call, pool=self._pool, alignment=config.mapping.alignment
        )
        passed = {**values(case, entry, given, session.constant), "stream": None, "null": None}
        if "handle" in config.call.null:
            passed["handle"] = None
        specs = as_c_counts(memory.specs(), case, entry)
        subject = Described(
            operator.run, specs, passed, partial(session.recipe, operator), session.workspace_of(operator)
        )
        with subject.alive() as descriptor:
            memory.take_workspace(subject.workspace_bytes)
            yield memory, operator.run, {**passed, "descriptor": descriptor}, subject

    def _direct(
        self, case: TestCase, config: FfiConfig, session: DirectSession, inputs: Sequence[Any]
    ) -> tuple[CaseMemory, DirectFunction, Callable[[], DirectFunction | None]]:
        """The same for an operator that is one function: the arguments say the layouts, and nothing is described;
        beside it what makes the function for tensors of twice the sizes."""
        specs = as_requested(specs_of_case(case, config.layouts), config.call)
        entry = bound_case(case, config.mapping, specs).entry
        outputs = {key.partition(":")[2]: spec for key, spec in specs.items() if spec and key.startswith("output:")}
        memory = CaseMemory(
            entry,
            _given(case, inputs),
            outputs,
            request=config.call,
            pool=self._pool,
            alignment=config.mapping.alignment,
        )
        placed = {key: spec for key, spec in memory.specs().items() if spec is not None}
        attributes = attribute_values(entry, case)

        def called(with_specs: Mapping[str, TensorSpec | None], request: CallRequest) -> DirectFunction:
            return session.call(bound_case(case, config.mapping, {**specs, **with_specs}), attributes, request)

        def other() -> DirectFunction | None:
            twice = {
                key: TensorSpec(dtype=spec.dtype, shape=tuple(2 * size for size in spec.shape))
                for key, spec in placed.items()
            }
            try:
                return called(twice, NO_REQUEST)
            except Gap:
                return None

        return memory, called(placed, config.call), other

    def _session(self, case: TestCase, config: FfiConfig) -> Session | DirectSession:
        return self._known(case, config)[1]

    def _library_probe(self, case: TestCase, config: FfiConfig) -> LibraryProbe:
        return self._known(case, config)[2]

    def _known(self, case: TestCase, config: FfiConfig) -> tuple[FfiConfig, Session | DirectSession, LibraryProbe]:
        """The same for the same configuration, which is kept alive; it counts by identity."""
        kind = DirectSession if case.descriptor.name in config.mapping.direct else Session
        known = self._asked.get((kind, id(config)))
        if known is None:
            if len(self._asked) >= _MOST_ASKED:
                self._asked.clear()
            known = self._asked[kind, id(config)] = (
                config,
                self._session_of(kind, config),
                self._probe_of(config),
            )
        return known

    def _session_of(self, kind: type[Session] | type[DirectSession], config: FfiConfig) -> Session | DirectSession:
        """The same for all that name the same library and device."""
        key = (kind, *config.identity)
        if key not in self._sessions:
            require_runtime(config)
            self._sessions[key] = kind(config)
        return self._sessions[key]

    def _answer(
        self, case: TestCase, config: FfiConfig, session: Session | DirectSession, inputs: Sequence[Any]
    ) -> Mapping[str, Any]:
        names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
        if config.session and session.fault is not None:
            raise session.fault
        probe = self._library_probe(case, config)
        with self._described(case, config, session, inputs) as (memory, _, _, subject):
            if case.expects_error is not None:
                try:
                    accepted = probe.probe_refusal(memory, subject)
                finally:
                    memory.release()
                shared = [name for name in names if name not in accepted]
                if shared:
                    said = f"the library returned success, though output {shared[0]} lies in the memory of an input"
                    raise Fault(Reason.NOT_REFUSED, said)
                return {name: accepted[name] for name in names or accepted}
            result = probe.probe_case(case.key, memory, subject, config)
        self._checks = {case.key: (*result.checks, *_notes_of_attributes(case, config), *_notes_of_session(session))}
        self._further = {case.key: [_of_the_operator(each, names) for each in result.further]}
        return {name: result.outputs[name] for name in names}

    def _probe_of(self, config: FfiConfig) -> LibraryProbe:
        """One for each library, since it holds an open file."""
        if config.identity not in self._probes:
            self._probes[config.identity] = LibraryProbe(config)
        return self._probes[config.identity]


def _required(case: TestCase) -> FfiConfig:
    """The configuration.

    Raises:
        Fault: BAD_CASE if there is none that can be used.
    """
    config, problems = read_ffi_config(case)
    if config is None or problems:
        raise Fault(Reason.BAD_CASE, "\n".join(problems))
    return config


def _notes_of_attributes(case: TestCase, config: FfiConfig) -> Sequence[Check]:
    """What is to be said of the attributes that C gets."""
    if case.descriptor.name not in config.mapping.direct:
        return notes_of_attributes(case, config.mapping)
    return narrowed(bound_case(case, config.mapping, specs_of_case(case, config.layouts)).entry, case)


def _notes_of_session(session: Session | DirectSession) -> Sequence[Check]:
    fault = session.fault
    return () if fault is None else (Check(name="device selection", state=CheckState.NOTE, detail=str(fault)),)


def _of_the_operator(answer: FurtherAnswer, names: Sequence[str]) -> FurtherAnswer:
    """Without the outputs that C has and optest's operator does not."""
    return replace(answer, outputs={name: answer.outputs[name] for name in names})


def _given(case: TestCase, inputs: Sequence[Any]) -> dict[str, Array]:
    return {argument.name: array for argument, array in zip(case.inputs, inputs, strict=True)}


def _output_specs(case: TestCase, config: FfiConfig, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """The outputs' layouts: dense unless the case says otherwise.

    A call that should be refused may have no output that follows from its inputs.
    """
    specs = outputs_of_c(case, entry)
    if not specs and case.expects_error is not None:
        specs = outputs_for_a_refusal(case, entry)
    if not specs:
        raise Fault(Reason.UNSUPPORTED, "the shapes of the outputs are not known; state them under `shapes:`")
    for name, strides, offset in config.layouts:
        if name not in specs:
            raise Fault(Reason.BAD_CASE, f"backend_config.ffi.outputs.{name}: this case has no such output")
        specs[name] = TensorSpec(dtype=specs[name].dtype, shape=specs[name].shape, strides=strides, offset=offset)
    return {name: _as_asked(spec, f"output:{name}", config.call) for name, spec in specs.items()}


def _as_asked(spec: TensorSpec, key: str, request: CallRequest) -> TensorSpec:
    """Another dtype or shape than follows from the inputs, where the case asks for it."""
    if key not in request.dtypes and key not in request.shapes:
        return spec
    return TensorSpec(dtype=request.dtypes.get(key, spec.dtype), shape=request.shapes.get(key, spec.shape))


def _refused(case: TestCase, config: FfiConfig, error: StatusError) -> Fault:
    if case.expects_error is None and (
        error.name in config.mapping.unsupported or error.code in config.mapping.unsupported
    ):
        return Fault(Reason.UNSUPPORTED, str(error))
    details = {
        "exception": f"{type(error).__name__}: {error}",
        "exception_types": [each.__name__ for each in type(error).__mro__],
        "function": error.function,
        "status": error.name or error.code,
    }
    return Fault(Reason.RAISED, f"the library refused: {error}", details=details)
