"""``optest ctest``: the CTest tests of a build folder as cases; CTest runs them, and its reports become the results."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from optest.backends import BackendDriver
from optest.core.devices import devices_held
from optest.core.executors import Executor
from optest.core.runner import ExecutionResult
from optest.errors import NothingSelected, OptestError, Unavailable, UnknownName, UsageError
from optest.guests import CommandContext
from optest.process import CannotStart, Finished
from optest.process import run as run_process
from optest.settings import environment
from optest.settings.platforms import PLATFORMS, Platform, device_ids, get_platform, is_device, why_skipped
from optest.spec import BackendTarget, Evidence, OperatorDescriptor, Reason, Skip, Status, TestCase, Timings, Verdict
from optest.store import require_regular

_LABEL = re.compile(r"requires_hardware(?:_(.+))?")
_MOST_OUTPUT = 1 << 27
_TAIL = 8192
_Reported: TypeAlias = dict[str, deque[tuple[Verdict, Timings]]]
_TEST = OperatorDescriptor(name="ctest", signature="-> out", open_attributes=True)


def ctest_command(context: CommandContext, *, include_dir: bool, **options: Any) -> int:
    """Run ``optest ctest`` with its options and return the exit status.

    Raises:
        UsageError: for a folder, device list, label or regular expression that is wrong.
        UnknownName: for a platform that is neither built in nor named by a label.
        NothingSelected: if there is no test.
        Unavailable: without CMake.
    """
    if include_dir:
        context.echo(str(Path(__file__).parent / "include"))
        return 0
    names = ("test_dir", "platform", "resource_type", "regex", "timeout")
    ctest_options = {name: options.pop(name) for name in names}
    jobs = options.pop("jobs") or os.cpu_count() or 1
    driver = CtestDriver(devices=device_ids(options.pop("devices")), jobs=jobs, **ctest_options)
    facts = {"command": "ctest", "platform": driver.platform, "device": driver.device_list}
    return context.run(driver.cases(), driver, facts, options)


def label_arguments(platform: str | None) -> list[str]:
    """Return CTest's arguments that select the tests for a platform by their labels."""
    # Same labels as `settings.platforms.why_skipped`.
    if not is_device(platform):
        return ["-LE", "^requires_hardware(_.+)?$"]
    return ["-L", f"^requires_hardware(_{re.escape(platform or '')})?$"]


@dataclass(slots=True, kw_only=True)
class CtestDriver(BackendDriver):
    """CTest in a build folder with the options of one run. The first request for a result runs all tests; CTest's files
    are in the run's folder."""

    name = "ctest"
    kind = "ctest"
    looks_ahead: ClassVar[bool] = False
    test_dir: str
    platform: str | None
    devices: tuple[int, ...]
    resource_type: str
    jobs: int
    timeout: float
    regex: str | None
    folder: Path = field(default=Path(), init=False)
    _reported: _Reported | None = field(default=None, init=False)

    @property
    def device_list(self) -> str:
        return ",".join(map(str, self.devices))

    def cases(self) -> list[TestCase]:
        """Return all tests as cases, in CTest's order; skip those for other platforms. Raises as `ctest_command`."""
        require_regular(Path(self.test_dir, "CTestTestfile.cmake"))
        listing = self._list_tests([])
        labels = [label for test in listing["tests"] for label in _test_property(test, "LABELS", ())]
        known = (*PLATFORMS, *(match[1] for match in map(_LABEL.fullmatch, labels) if match and match[1]))
        if self.platform is not None and self.platform not in known:
            raise UnknownName("platform", self.platform, known)
        if not listing["tests"]:
            how = f" whose name matches {self.regex}" if self.regex else "; does its CMakeLists.txt enable_testing()?"
            raise NothingSelected(f"there is no test in {self.test_dir}{how}")
        selected = list(map(_test_identity, self._list_tests(label_arguments(self.platform))["tests"]))
        target = BackendTarget(name=self.name, kind=self.kind, device=self.platform)
        return [
            TestCase(
                descriptor=_TEST,
                inputs=(),
                name=test["name"],
                attributes={"test": test["name"]},
                backend=target,
                backend_config={self.name: {"command": test.get("command", [])}},
                tags=tuple(_test_property(test, "LABELS", ())),
                where=_source_line(test, listing["backtraceGraph"]),
                skip=None if _test_identity(test) in selected else Skip(reason=self._skip_reason(test)),
            )
            for test in listing["tests"]
        ]

    def _skip_reason(self, test: Mapping[str, Any]) -> str:
        """Return why CTest does not run a test on this platform; raise UsageError for labels that contradict."""
        labels = [match[1] for match in map(_LABEL.fullmatch, _test_property(test, "LABELS", ())) if match]
        try:
            reasons = [why_skipped((label,) if label else (), self.platform) for label in labels]
        except UsageError as error:
            raise UsageError(f"the labels of test {test['name']} are wrong: {error}") from None
        return (reasons or [why_skipped(None, self.platform)])[0] or "excluded by CTest"

    def _list_tests(self, arguments: Sequence[str]) -> Any:
        """Return CTest's JSON description of the tests that ``arguments`` select; raise UsageError if it fails."""
        done = self.ctest([*arguments, "--show-only=json-v1"])
        if done.returncode or not done.stdout_tail.lstrip().startswith("{"):
            output = " ".join((done.stderr_tail.strip() or done.stdout_tail.strip()).partition("\n\n")[0].split())
            reason = output or "ctest prints nothing" if os.path.isdir(self.test_dir) else "there is no such folder"
            raise UsageError(
                f"the tests in {self.test_dir} cannot be listed: {reason}\n"
                "  set --test-dir to the folder that CMake built in: cmake -B build && cmake --build build"
            )
        return json.loads(done.stdout_tail)

    def ctest(self, arguments: Sequence[str]) -> Finished:
        """Run CTest in the build folder and return the finished process; raise ``Unavailable`` if it is missing."""
        names = [] if self.regex is None else ["-R", self.regex]
        command = ["ctest", "--test-dir", self.test_dir, *names, *arguments]
        try:
            return run_process(command, cwd=".", env=environment(), timeout_s=None, tail_bytes=_MOST_OUTPUT)
        except CannotStart:
            raise Unavailable("ctest", "install CMake, 3.21 or newer") from None

    def executor(self, folder: Path) -> Executor:
        self.folder = folder.absolute()
        return self

    def execute(
        self,
        cases: Sequence[TestCase],
        following: Sequence[Sequence[TestCase]] = (),  # noqa: ARG002 - part of the protocol
    ) -> ExecutionResult:
        """Return CTest's results for the cases; the first call runs all tests. Raise OptestError without a report."""
        if self._reported is None:
            self._reported = self._run()
        results = self._reported[cases[0].name]
        missing = (_not_run_verdict("CTest reported no result for it"), Timings())
        reported = [results.popleft() if results else missing for _ in cases]
        config = cases[0].backend_config[self.name]
        verdicts = tuple(replace(verdict, details={**verdict.details, **config}) for verdict, _ in reported)
        return ExecutionResult(verdicts, reported[0][1])

    def close(self) -> None:
        return None

    def _run(self) -> _Reported:
        """Run all selected tests; return the verdicts and times by name, several for tests of the same name."""
        report, resources = self.folder / "ctest.xml", self.folder / "resources.json"
        slots = [{"id": str(device), "slots": 1} for device in self.devices]
        spec = {"version": {"major": 1, "minor": 0}, "local": [{self.resource_type: slots}]}
        resources.write_text(json.dumps(spec, indent=2) + "\n")
        # Always with the file: without it CTest runs tests that need devices, but assigns none.
        arguments = ["--resource-spec-file", str(resources), "--output-on-failure", "--output-junit", str(report)]
        arguments += ["-j", str(self.jobs), "--timeout", f"{self.timeout:g}"]
        name = self.platform or ""
        platform = get_platform(name) if name in PLATFORMS else Platform(name=name or "sim")
        # All devices: a test without RESOURCE_GROUPS may use any of them.
        with devices_held(platform, self.devices):
            done = self.ctest([*label_arguments(self.platform), *arguments])
        if not report.exists():
            output = (done.stderr_tail.strip() or done.stdout_tail.strip())[-_TAIL:]
            raise OptestError(f"ctest exited with {done.returncode} and wrote no report\n{output}")
        results: _Reported = defaultdict(deque)
        # The list at the end has how tests failed; the JUnit report does not distinguish crashes and time limits.
        failed = done.stdout_tail.rpartition("The following tests FAILED:")[2].splitlines()
        endings = {match[1]: match[2] for line in failed if (match := _ENDING.fullmatch(line))}
        for test in ET.parse(report).getroot().iter("testcase"):
            name = test.get("name", "")
            verdict = _verdict_of(test, endings.get(name, ""))
            results[name].append((verdict, Timings(run_s=float(test.get("time", 0)))))
        return results

    def command_line(self, case: TestCase) -> Sequence[str]:
        words = ["ctest", "--test-dir", self.test_dir, "--device", self.device_list]
        words += [] if self.platform is None else ["--platform", self.platform]
        words += [] if self.resource_type == "npus" else ["--resource-type", self.resource_type]
        return [*words, "-R", f"^{re.escape(case.name)}$"]

    def versions(self) -> Mapping[str, str]:
        first = self.ctest(["--version"]).stdout_tail.partition("\n")[0]
        return {"ctest": first.removeprefix("ctest version ")}


def _test_property(test: Mapping[str, Any], name: str, default: Any) -> Any:
    return next((entry["value"] for entry in test["properties"] if entry["name"] == name), default)


# Folders of one project may have tests of the same name.
def _test_identity(test: Mapping[str, Any]) -> tuple[str, str]:
    return test["name"], _test_property(test, "WORKING_DIRECTORY", "")


def _source_line(test: Mapping[str, Any], graph: Mapping[str, Any]) -> str:
    """Return FILE:LINE of the CMake call that adds the test, "" if unknown."""
    node = graph["nodes"][test["backtrace"]] if "backtrace" in test else {}
    return f"{os.path.relpath(graph['files'][node['file']])}:{node['line']}" if "line" in node else ""


_ENDING = re.compile(r"\s*\d+ - (.+?) \(([^()]+)\)(?:\s{2,}.*)?")
_FAILED = (Status.FAILED, Reason.EXIT_CODE, "the test failed")
_LATE = (Status.TIMEOUT, Reason.DEADLINE, "CTest ended it at its time limit")
_FAILURES = {"": _FAILED, "Failed": _FAILED, "Timeout": _LATE}
_OF_SKIPS = ("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION")
_MORE_SLOTS = re.compile(r"(\n +1 slot)\1+")
_NO_TEST_PASSED = re.compile(r"^\[  PASSED  \] 0 tests\.", re.MULTILINE)


def _verdict_of(test: ET.Element, ending: str) -> Verdict:
    """Return the verdict for a test in the JUnit report; ``ending`` is its word in CTest's list of failed tests."""
    output = test.findtext("system-out") or ""
    reason = next((node.get("message", "") for tag in ("failure", "skipped") for node in test.iter(tag)), "").strip()
    match test.get("status"):
        case "run" if _NO_TEST_PASSED.search(output):
            return Verdict(status=Status.SKIPPED, message="GoogleTest passed no test: it skipped all, or had none")
        case "run":
            return Verdict(status=Status.PASSED, evidence=Evidence.EXTERNAL_REPORT)
        case "disabled":
            return Verdict(status=Status.SKIPPED, message="disabled in CMake")
        case "fail" if ending == "BAD_COMMAND":
            return _not_run_verdict("its command cannot be started; check that the file is executable")
        case "fail":
            status, kind, text = _FAILURES.get(ending, (Status.CRASHED, Reason.SIGNAL, f"CTest: {ending}"))
            details = {"stdout_tail": output[-_TAIL:]}
            return Verdict(status=status, reason=kind, message=reason or text, details=details)
        case _ if reason.startswith(_OF_SKIPS):
            return Verdict(status=Status.SKIPPED, message=f"the test skipped itself ({reason})")
    # Not run: CTest prints why, with a line for each missing slot.
    output = _MORE_SLOTS.sub(lambda match: f"{match[1]} × {match[0].count('slot')}", output)
    return _not_run_verdict(output.partition("\n\nResource spec file:")[0].strip() or reason)


def _not_run_verdict(why: str) -> Verdict:
    return Verdict(status=Status.ERROR, reason=Reason.UNAVAILABLE, message=f"not run: {why}", details={"not_run": True})
