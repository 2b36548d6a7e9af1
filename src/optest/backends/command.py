"""Commands as a backend: inputs go into files, a program runs, outputs come from files it wrote.

One driver under two names: ``command`` for any program, ``ascend`` (kind ``npu``) for Ascend run scripts.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from optest.backends import BackendDriver, Script, ScriptInput
from optest.backends.builds import OWN_FILES, Build, Builds
from optest.backends.command_config import (
    Command,
    CommandConfig,
    TensorFile,
    case_tokens,
    file_dtypes,
    path_tokens,
    read_config,
    why_outside,
)
from optest.backends.command_script import Commands, command_script
from optest.backends.golden_files import GoldenState, Origin, golden_state, key_file, read_golden, write_golden
from optest.backends.numpy_reference import reference_outputs
from optest.backends.tensor_files import locked, read_tensor, remove_file, write_tensor
from optest.backends.tokens import expand
from optest.numerics import dtype_of, round_to
from optest.process import CannotStart, Finished, crash_below_a_shell, run, signal_name
from optest.settings import environment
from optest.spec import Check, CheckState, Fault, Reason, Status, TestCase, format_shape
from optest.store import path_of

_TAIL_BYTES = 8192
_CLEANUP_S = 30.0
"""How long cleanup may take, beyond the case's deadline."""


class CommandBackendDriver(BackendDriver):
    """Runs the command of ``backend_config.<name>``; docs/backends/command.md has its keys and tokens."""

    name = "command"
    kind = "command"
    reads_inputs = False
    chips: tuple[str, ...] = ("*",)
    runs_programs = True
    isolated = False  # the foreign code has processes of its own, under a guard
    keeps_deadline = True

    def __init__(self) -> None:
        self._builds = Builds()
        self._checks: dict[str, tuple[Check, ...]] = {}

    def dtypes_of(self, options: Mapping[str, Any]) -> Mapping[str, str]:
        return file_dtypes(options.get("inputs"))

    def problems(self, case: TestCase) -> Sequence[str]:
        return () if why_outside(case, self.name) else read_config(case, self.name)[1]

    def unsupported(self, case: TestCase) -> str | None:
        return why_outside(case, self.name)

    def checks(self, case: TestCase) -> Sequence[Check]:
        return self._checks.get(case.key, ())

    def doctor(self) -> Sequence[str]:
        return ("runs the commands that a plan names; needs nothing itself",)

    def golden(self, case: TestCase) -> Sequence[Any] | None:
        """Golden files to compare with: refused when stale, unless the plan also says where to dump new ones.

        Raises:
            Fault: BAD_CASE for golden files that are missing, of another case or of another size.
        """
        job = self._job(case)
        if not job.config.golden_load:
            return None
        origin = Origin.of(case)
        for file in job.config.golden_load:
            state = golden_state(job.golden_path(file), origin)
            if state in (GoldenState.FRESH, GoldenState.UNVOUCHED):
                continue
            if job.config.golden_dump and state is not GoldenState.CHANGED:
                return None
            shape = format_shape(file.spec.shape)
            message = (
                f"golden file {job.path(file)} of {file.tensor} ({file.dtype}[{shape}]) {state.value}, expected "
                f"the expected output of {case.key}; name it under golden.dump to have it made from the reference"
            )
            raise Fault(Reason.BAD_CASE, message)
        return [read_golden(file, job.path(file)) for file in job.config.golden_load]

    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:  # noqa: ARG002
        """The same files, commands and environment; nothing is run for it."""
        try:
            job = self._job(case)
        except Fault as fault:
            return f"its configuration is wrong: {fault.message}"
        config = job.config
        commands = Commands(
            workdir=job.workdir,
            env=job.env,
            before=[job.expanded(command) for command in (*config.build, *config.prepare)],
            command=job.expanded(config.command),
            cleanup=[job.expanded(command) for command in config.cleanup],
            timeout_s=case.timeout_s,
        )
        return command_script(
            commands,
            [(each, file, job.path(file)) for each, file in zip(inputs, config.inputs, strict=True)],
            [(file, job.path(file)) for file in config.outputs],
        )

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        job = self._job(case)
        with locked(job.workdir):
            return self._run(job, inputs)

    def _run(self, job: _Job, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one case in a directory that is ours for as long as it takes."""
        steps = _Steps(job)
        if job.config.build:
            self._builds.ensure(job.build, job.case, steps.build_fault)
        for file in job.config.outputs:
            remove_file(file, job.path(file))
        try:
            for file, array in zip(job.config.inputs, inputs, strict=True):
                write_tensor(file, job.path(file), array)
            for command in job.config.prepare:
                steps.run("prepare", job.expanded(command))
            for file in job.config.outputs:
                remove_file(file, job.path(file))  # a sample's folder may come with outputs of its own
            finished = steps.run("command", job.expanded(job.config.command))
            outputs = [_read(file, job, finished) for file in job.config.outputs]
        finally:
            steps.clean_up()
            self._checks = {job.case.key: (*steps.checks, *_conversions(job, inputs), *_golden_checks(job))}
        _dump_golden(job, inputs)
        return outputs

    def _job(self, case: TestCase) -> _Job:
        config, problems = read_config(case, self.name)
        if problems:
            raise Fault(Reason.BAD_CASE, "\n".join(problems))
        return _Job.of(case, config)


class AscendBackendDriver(CommandBackendDriver):
    """The same for Ascend run scripts, configured under ``backend_config.ascend``; takes every Ascend chip."""

    name = "ascend"
    kind = "npu"
    chips = ("ascend310", "ascend310b", "ascend310p", "ascend910", "ascend910a", "ascend910b", "ascend910c")

    def accepts_chip(self, chip: str) -> bool:
        return chip.casefold().startswith("ascend")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A case with its configuration, every token replaced."""

    case: TestCase
    config: CommandConfig
    workdir: Path
    tokens: Mapping[str, str]

    @classmethod
    def of(cls, case: TestCase, config: CommandConfig) -> _Job:
        workdir = path_of(case, expand(config.workdir, path_tokens(case)))
        workdir.mkdir(parents=True, exist_ok=True)
        for name in OWN_FILES if config.build else ():
            path_of(case, name, workdir)
        tokens = {**case_tokens(case), "workdir": str(workdir)}
        job = cls(case=case, config=config, workdir=workdir, tokens=tokens)
        tokens |= {file.tensor: str(job.path(file)) for file in (*config.inputs, *config.outputs)}
        return job

    @property
    def build(self) -> Build:
        commands, env = tuple(map(self.expanded, self.config.build)), tuple(sorted(self.config.env.items()))
        return Build(workdir=self.workdir, commands=commands, env=env)

    def path(self, file: TensorFile) -> Path:
        """Where the file lies, told again at every use: a link may have appeared."""
        return path_of(self.case, expand(file.path, path_tokens(self.case)), self.workdir)

    def golden_path(self, file: TensorFile) -> Path:
        """The same for a file with another one beside it that vouches for it."""
        path = self.path(file)
        path_of(self.case, str(key_file(path)))
        return path

    def expanded(self, command: Command) -> Command:
        return tuple(expand(part, self.tokens) for part in command)

    @property
    def env(self) -> dict[str, str]:
        return {name: expand(value, self.tokens) for name, value in self.config.env.items()}


@dataclass(slots=True)
class _Steps:
    """The commands of one case, under one deadline."""

    job: _Job
    began: float = field(default_factory=time.monotonic)
    checks: list[Check] = field(default_factory=list)

    def run(self, step: str, argv: Command) -> Finished:
        """Run one command of the step, its tokens replaced.

        Raises:
            Fault: UNAVAILABLE, DEADLINE, SIGNAL or EXIT_CODE, with the ends of both streams.
        """
        limit = self.job.case.timeout_s
        left_s = None if limit is None else max(0.0, limit - (time.monotonic() - self.began))
        try:
            finished = self._finished(argv, left_s)
        except CannotStart as error:
            details = {"command": shlex.join(argv), "step": step}
            raise Fault(Reason.UNAVAILABLE, f"{_called(step)}{error}", status=Status.ERROR, details=details) from error
        if finished.strays and not finished.timed_out:
            self._note("left nothing running", f"{finished.strays} processes that {step} left behind were killed")
        fault = _fault_of(step, argv, finished, limit)
        if fault is not None:
            raise fault
        return finished

    def build_fault(self, argv: Command) -> Fault | None:
        """Run a build command; a failure of it is COMPILE, whatever it was."""
        try:
            self.run("build", argv)
        except Fault as fault:
            if fault.reason is Reason.DEADLINE:
                return fault
            return Fault(Reason.COMPILE, fault.message, details=fault.details)
        return None

    def clean_up(self) -> None:
        """Run every cleanup command, each also after the failure of another; what fails is noted."""
        for command in self.job.config.cleanup:
            argv = self.job.expanded(command)
            try:
                finished = self._finished(argv, _CLEANUP_S)
            except CannotStart as error:
                self._note("cleanup", str(error))
                continue
            fault = _fault_of("cleanup", argv, finished, _CLEANUP_S)
            if fault is not None:
                self._note("cleanup", f"{fault.message}\n{fault.details['stderr_tail']}".strip())

    def _finished(self, argv: Command, timeout_s: float | None) -> Finished:
        env = environment() | self.job.env
        return run(argv, cwd=self.job.workdir, env=env, timeout_s=timeout_s, tail_bytes=_TAIL_BYTES)

    def _note(self, name: str, detail: str) -> None:
        self.checks.append(Check(name=name, state=CheckState.NOTE, detail=detail))


def _called(step: str) -> str:
    return "" if step == "command" else f"{step}: "


def _fault_of(step: str, argv: Command, finished: Finished, timeout_s: float | None) -> Fault | None:
    """What a command that did not end well amounts to."""
    fault = partial(Fault, details=_details(step, argv, finished))
    if finished.timed_out:
        return fault(Reason.DEADLINE, f"{_called(step)}{argv[0]} did not end within {timeout_s:g} s and was killed")
    if finished.signal is not None:
        return fault(Reason.SIGNAL, f"{_called(step)}{argv[0]} was killed by {signal_name(finished.signal)}")
    crash = crash_below_a_shell(finished.returncode)
    if crash is not None:
        how = f"exited with status {finished.returncode}, a shell's word for {crash} in a program that it ran"
        return fault(Reason.SIGNAL, f"{_called(step)}{argv[0]} {how}")
    if finished.returncode:
        how = f"exited with status {finished.returncode}{_meaning(finished.returncode)}"
        return fault(Reason.EXIT_CODE, f"{_called(step)}{argv[0]} {how}")
    return None


def _meaning(status: int) -> str:
    """What a shell means by a status beyond 125."""
    if status == 126:
        return " (a shell's word for a program that it cannot execute)"
    if status == 127:
        return " (a shell's word for a program that it cannot find)"
    if status > 128 and not signal_name(status - 128).startswith("signal "):
        return f" (a shell's word for {signal_name(status - 128)} in a program that it ran, or the program's own)"
    return ""


def _details(step: str, argv: Command, finished: Finished) -> dict[str, Any]:
    details: dict[str, Any] = {
        "command": shlex.join(argv),
        "step": step,
        "stderr_tail": finished.stderr_tail,
        "stdout_tail": finished.stdout_tail,
    }
    if finished.signal is not None:
        details["signal"] = signal_name(finished.signal)
    else:
        details["exit_code"] = finished.returncode
        crash = crash_below_a_shell(finished.returncode)
        if crash is not None:
            details["signal"] = crash
    for stream, written in (("stdout", finished.stdout_bytes), ("stderr", finished.stderr_bytes)):
        if written > _TAIL_BYTES:
            details[f"{stream}_bytes"] = written  # more than the tail shows
    if finished.strays:
        details["strays_killed"] = finished.strays
    return details


def _read(file: TensorFile, job: _Job, finished: Finished) -> Any:
    """Read an output; if it is not as it should be, the ends of the command's streams say why."""
    try:
        return read_tensor(file, job.path(file))
    except Fault as fault:
        details = {**_details("command", job.expanded(job.config.command), finished), **fault.details}
        raise Fault(fault.reason, fault.message, details=details) from None


def _conversions(job: _Job, inputs: Sequence[Any]) -> list[Check]:
    """A note for every input that is another number in its file than for the reference."""
    checks = []
    for file, array in zip(job.config.inputs, inputs, strict=True):
        given = dtype_of(array.dtype)
        if given is not file.dtype:
            detail = f"{file.tensor} is {given}, but was written as {file.dtype}; the reference saw {given}"
            checks.append(Check(name="inputs as generated", state=CheckState.NOTE, detail=detail))
    return checks


def _dump_golden(job: _Job, inputs: Sequence[Any]) -> None:
    """Write the reference's outputs where a golden file is missing or stale, but never over a user's own."""
    if not job.config.golden_dump:
        return
    origin = Origin.of(job.case)
    states = [golden_state(job.golden_path(file), origin) for file in job.config.golden_dump]
    if not any(state in (GoldenState.MISSING, GoldenState.STALE) for state in states):
        return
    outputs = reference_outputs(job.case, inputs)
    for file, state, value in zip(job.config.golden_dump, states, outputs, strict=True):
        if state not in (GoldenState.UNVOUCHED, GoldenState.CHANGED):
            write_golden(file, job.golden_path(file), round_to(value, file.dtype), origin)


def _golden_checks(job: _Job) -> list[Check]:
    """A note for every golden file that nothing ties to this case's inputs."""
    if not job.config.golden_load:
        return []
    origin, unvouched = Origin.of(job.case), GoldenState.UNVOUCHED
    return [
        Check(name="golden file", state=CheckState.NOTE, detail=f"{path} {unvouched.value}")
        for path in map(job.golden_path, job.config.golden_load)
        if golden_state(path, origin) is unvouched
    ]
