"""Backends that run a command: inputs are written into files, the outputs are read from the files that it writes.

The driver has two names: ``command`` for any program, ``ascend`` (kind ``npu``) for Ascend run scripts.
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
# For cleanup, beyond the time limit of the case.
_CLEANUP_S = 30.0


class CommandBackendDriver(BackendDriver):
    """Runs the command of ``backend_config.<name>``; docs/backends/command.md has its keys and tokens."""

    name = "command"
    kind = "command"
    reads_inputs = False
    chips: tuple[str, ...] = ("*",)
    runs_programs = True
    isolated = False  # each command has its own process, which is guarded
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
        """Return the golden outputs of a case, None without them or if ``golden.dump`` will replace stale ones.

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
                f"the expected output of {case.key}; name it under golden.dump to create it from the reference"
            )
            raise Fault(Reason.BAD_CASE, message)
        return [read_golden(file, job.path(file)) for file in job.config.golden_load]

    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:  # noqa: ARG002
        """Return a script with the same files, commands and environment; run nothing."""
        try:
            job = self._job(case)
        except Fault as fault:
            return f"its configuration is wrong: {fault.message}"
        config = job.config
        commands = Commands(
            workdir=job.workdir,
            env=job.env,
            before=[job.expand_command(command) for command in (*config.build, *config.prepare)],
            command=job.expand_command(config.command),
            cleanup=[job.expand_command(command) for command in config.cleanup],
            timeout_s=case.timeout_s,
        )
        return command_script(
            commands,
            [(entry, file, job.path(file)) for entry, file in zip(inputs, config.inputs, strict=True)],
            [(file, job.path(file)) for file in config.outputs],
        )

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        job = self._job(case)
        with locked(job.workdir):
            return self._run(job, inputs)

    def _run(self, job: _Job, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one case in a locked directory and return its outputs; run the cleanup commands in any case."""
        steps = _Steps(job)
        if job.config.build:
            self._builds.ensure(job.build, job.case, steps.build_fault)
        for file in job.config.outputs:
            remove_file(file, job.path(file))
        try:
            for file, array in zip(job.config.inputs, inputs, strict=True):
                write_tensor(file, job.path(file), array)
            for command in job.config.prepare:
                steps.run("prepare", job.expand_command(command))
            for file in job.config.outputs:
                remove_file(file, job.path(file))  # `prepare` may copy a sample's folder with old outputs
            finished = steps.run("command", job.expand_command(job.config.command))
            outputs = [_read_output(file, job, finished) for file in job.config.outputs]
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
    """Runs Ascend run scripts, configured under ``backend_config.ascend``; accepts every Ascend chip."""

    name = "ascend"
    kind = "npu"
    chips = ("ascend310", "ascend310b", "ascend310p", "ascend910", "ascend910a", "ascend910b", "ascend910c")

    def accepts_chip(self, chip: str) -> bool:
        return chip.casefold().startswith("ascend")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A case with its configuration, and the values of the tokens in it."""

    case: TestCase
    config: CommandConfig
    workdir: Path
    tokens: Mapping[str, str]

    @classmethod
    def of(cls, case: TestCase, config: CommandConfig) -> _Job:
        workdir = path_of(case, expand(config.workdir, path_tokens(case)))
        workdir.mkdir(parents=True, exist_ok=True)
        for name in OWN_FILES if config.build else ():
            path_of(case, name, workdir)  # raises for a link that leads out of the folders that a run may write
        tokens = {**case_tokens(case), "workdir": str(workdir)}
        job = cls(case=case, config=config, workdir=workdir, tokens=tokens)
        # Paths of files may use the tokens before them only.
        tokens |= {file.tensor: str(job.path(file)) for file in (*config.inputs, *config.outputs)}
        return job

    @property
    def build(self) -> Build:
        commands, env = tuple(map(self.expand_command, self.config.build)), tuple(sorted(self.config.env.items()))
        return Build(workdir=self.workdir, commands=commands, env=env)

    def path(self, file: TensorFile) -> Path:
        """Return the path of a file, resolved at every use: a link may have appeared."""
        return path_of(self.case, expand(file.path, path_tokens(self.case)), self.workdir)

    def golden_path(self, file: TensorFile) -> Path:
        """Return the path of a golden file; check the path of its key file, too."""
        path = self.path(file)
        path_of(self.case, str(key_file(path)))
        return path

    def expand_command(self, command: Command) -> Command:
        return tuple(expand(part, self.tokens) for part in command)

    @property
    def env(self) -> dict[str, str]:
        return {name: expand(value, self.tokens) for name, value in self.config.env.items()}


@dataclass(slots=True)
class _Steps:
    """Runs the commands of one case under one time limit, and collects notes about them."""

    job: _Job
    began: float = field(default_factory=time.monotonic)
    checks: list[Check] = field(default_factory=list)

    def run(self, step: str, argv: Command) -> Finished:
        """Run a command of ``step`` in the remaining time; raise Fault, with the ends of its output, if it fails."""
        limit = self.job.case.timeout_s
        left_s = None if limit is None else max(0.0, limit - (time.monotonic() - self.began))
        try:
            finished = self._execute(argv, left_s)
        except CannotStart as error:
            details = {"command": shlex.join(argv), "step": step}
            message = f"{_step_prefix(step)}{error}"
            raise Fault(Reason.UNAVAILABLE, message, status=Status.ERROR, details=details) from error
        if finished.strays and not finished.timed_out:
            self._note("left nothing running", f"{finished.strays} processes left by {step} were killed")
        fault = _fault_of(step, argv, finished, limit)
        if fault is not None:
            raise fault
        return finished

    def build_fault(self, argv: Command) -> Fault | None:
        """Run a build command; return None if it succeeds, its DEADLINE fault, or any other fault as COMPILE."""
        try:
            self.run("build", argv)
        except Fault as fault:
            if fault.reason is Reason.DEADLINE:
                return fault
            return Fault(Reason.COMPILE, fault.message, details=fault.details)
        return None

    def clean_up(self) -> None:
        """Run every cleanup command, also after a failure; note the failures."""
        for command in self.job.config.cleanup:
            argv = self.job.expand_command(command)
            try:
                finished = self._execute(argv, _CLEANUP_S)
            except CannotStart as error:
                self._note("cleanup", str(error))
                continue
            fault = _fault_of("cleanup", argv, finished, _CLEANUP_S)
            if fault is not None:
                self._note("cleanup", f"{fault.message}\n{fault.details['stderr_tail']}".strip())

    def _execute(self, argv: Command, timeout_s: float | None) -> Finished:
        env = environment() | self.job.env
        return run(argv, cwd=self.job.workdir, env=env, timeout_s=timeout_s, tail_bytes=_TAIL_BYTES)

    def _note(self, name: str, detail: str) -> None:
        self.checks.append(Check(name=name, state=CheckState.NOTE, detail=detail))


def _step_prefix(step: str) -> str:
    return "" if step == "command" else f"{step}: "


def _fault_of(step: str, argv: Command, finished: Finished, timeout_s: float | None) -> Fault | None:
    """Return the fault of a command: DEADLINE, SIGNAL (also of a program that a shell ran) or EXIT_CODE; None for 0."""
    status, program = finished.returncode, f"{_step_prefix(step)}{argv[0]}"
    fault = partial(Fault, details=_details_of(step, argv, finished))
    if finished.timed_out:
        return fault(Reason.DEADLINE, f"{program} did not end within {timeout_s:g} s and was killed")
    if finished.signal is not None:
        return fault(Reason.SIGNAL, f"{program} was killed by {signal_name(finished.signal)}")
    crash = crash_below_a_shell(status)
    if crash is not None:
        return fault(Reason.SIGNAL, f"{program} exited with status {status}: a program that it ran died of {crash}")
    return (
        fault(Reason.EXIT_CODE, f"{program} exited with status {status}{_meaning_of_status(status)}")
        if status
        else None
    )


def _meaning_of_status(status: int) -> str:
    """Return the meaning that shells give an exit status above 125, in parentheses; "" for other statuses."""
    if status == 126:
        return " (from a shell: the program cannot be executed)"
    if status == 127:
        return " (from a shell: the program is not found)"
    if status > 128 and not signal_name(status - 128).startswith("signal "):
        return f" (from a shell: a program that it ran died of {signal_name(status - 128)})"
    return ""


def _details_of(step: str, argv: Command, finished: Finished) -> dict[str, Any]:
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
            details[f"{stream}_bytes"] = written  # the tail is not everything
    if finished.strays:
        details["strays_killed"] = finished.strays
    return details


def _read_output(file: TensorFile, job: _Job, finished: Finished) -> Any:
    """Read an output file; add the ends of the command's stdout and stderr to a fault."""
    try:
        return read_tensor(file, job.path(file))
    except Fault as fault:
        details = {**_details_of("command", job.expand_command(job.config.command), finished), **fault.details}
        raise Fault(fault.reason, fault.message, details=details) from None


def _conversions(job: _Job, inputs: Sequence[Any]) -> list[Check]:
    """Return a note for every input that is written in another dtype than the reference gets."""
    checks = []
    for file, array in zip(job.config.inputs, inputs, strict=True):
        generated = dtype_of(array.dtype)
        if generated is not file.dtype:
            detail = f"{file.tensor} was written as {file.dtype}; the reference got it as {generated}"
            checks.append(Check(name="inputs as generated", state=CheckState.NOTE, detail=detail))
    return checks


def _dump_golden(job: _Job, inputs: Sequence[Any]) -> None:
    """Write the reference's outputs to golden files that are missing or stale; never overwrite a user's file."""
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
    """Return a note for every golden file without a key file: it may belong to other inputs."""
    if not job.config.golden_load:
        return []
    origin, unvouched = Origin.of(job.case), GoldenState.UNVOUCHED
    return [
        Check(name="golden file", state=CheckState.NOTE, detail=f"{path} {unvouched.value}")
        for path in map(job.golden_path, job.config.golden_load)
        if golden_state(path, origin) is unvouched
    ]
