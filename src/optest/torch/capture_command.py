"""``optest capture``: run a model once and write its torch calls as a file of model cases."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optest.core.extensions import load_extensions
from optest.core.runner import why_not_run
from optest.errors import InternalError, NothingSelected, PlanError, Unavailable, UsageError, shortened
from optest.guests import CommandContext
from optest.plan import parse_plan
from optest.plan.scalars import json_or_text
from optest.registry import load_object
from optest.reporting.typography import counted
from optest.torch.cases import split_names
from optest.torch.model_cases.writing import text_of_model_file

if TYPE_CHECKING:
    from optest.torch.capture.running import Capture

# The reason of calls such as ``manual_seed``: every model makes them, so they are not listed.
_QUIET = "compute nothing"
_MAX_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCapture:
    """A written file of model cases, and the capture that it holds."""

    path: str
    model: str
    capture: Capture
    # Reason that a case of the file cannot run, by the case's name.
    not_run: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the command's report: numbers of cases and calls, omitted calls, and the next commands."""
        operators = len({case["op"] for case in self.capture.cases})
        yield (
            f"{self.path}: {counted(len(self.capture.cases), 'case')} of {counted(self.capture.calls, 'call')}, "
            f"{counted(operators, 'operator')}, model {self.model}"
        )
        yield from _describe_omitted(self.capture)
        for name, reason in self.not_run.items():
            yield f"  will not run: {name}: {reason}"
        yield "next:"
        yield f"  optest run --plan {shlex.quote(self.path)}"
        yield f"  optest run --plan {shlex.quote(self.path)} --compile-backend inductor"


def require_writable(path: str, *, force: bool) -> None:
    """Raise UsageError unless ``path`` ends in .yaml or .yml and can be written; ``force`` allows an existing file."""
    file = Path(path)
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"-o is {path}, expected a file that ends in .yaml")
    if file.is_dir():
        raise UsageError(f"-o is {path}, which is a folder")
    if not file.parent.is_dir():
        raise UsageError(f"-o is {path}, but there is no folder {file.parent}")
    if file.exists() and not force:
        raise _file_exists(path)


def _file_exists(path: str | Path) -> UsageError:
    return UsageError(f"{path} exists already and was not changed; choose another file, or use --force")


def capture(
    target: str,
    output: str,
    *,
    model: str = "",
    level: str = "torch",
    ops: Sequence[str] = (),
    min_bytes: int = 0,
    max_bytes: int | None = None,
    shrink_to: int | None = None,
    seed: int = 0,
    config: Sequence[str] = (),
    force: bool = False,
) -> WrittenCapture:
    """Run the script or model ``target`` once, write the selected torch calls to the file ``output``, describe it.

    Raises:
        UsageError: if the target cannot be found or run, or the file cannot be written.
        NothingSelected: if the target makes no call that becomes a case.
        Unavailable: if torch, or a package that the model needs, is not installed.
    """
    require_writable(output, force=force)
    # Before the model runs, which may take minutes: a plug-in that cannot be loaded is an error.
    load_extensions(None)
    try:
        # These modules import torch.
        selection_type = load_object("optest.torch.capture.watching:Selection")
        run_captured = load_object("optest.torch.capture.running:capture_model")
    except Unavailable as error:
        raise Unavailable("capture", error.remedy) from None

    selection = selection_type(ops=split_names(ops), min_bytes=min_bytes, max_bytes=max_bytes)
    parsed = _parse_config(config)
    result = run_captured(target, selection=selection, level=level, seed=seed, shrink_to=shrink_to, config=parsed)
    if not result.cases:
        lines = list(_describe_omitted(result)) or ["  no torch call was made: does the function run the model?"]
        raise NothingSelected("\n".join([f"{target} made no call that becomes a case; nothing was written", *lines]))
    name = model or result.stem
    text = text_of_model_file(
        name,
        result.cases,
        defaults={"dtype": result.dtype, "seed": seed},
        comment=[f"Calls of torch that {target.rpartition('/')[2]} makes, written by `optest capture`."],
    )
    _write(Path(output), text, force=force)
    return WrittenCapture(path=output, model=name, capture=result)


def capture_command(context: CommandContext, **options: Any) -> int:
    """Run ``optest capture`` and print its report, with the cases that the torch backend cannot run; return 0."""
    written = capture(**options)
    cases, driver = context.cases(plan=written.path, backend="torch")
    verdicts = {case.name: why_not_run(case, driver) for case in cases}
    not_run = {name: verdict.message for name, verdict in verdicts.items() if verdict is not None}
    for line in replace(written, not_run=not_run).lines():
        context.echo(line)
    return 0


def _parse_config(words: Sequence[str]) -> dict[str, Any]:
    """Merge ``KEY=VALUE`` words (a JSON value or text) and JSON files into one dictionary; later words win."""
    config: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            config[key] = json_or_text(value)
            continue
        try:
            content = json.loads(Path(word).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--config is {word}, expected KEY=VALUE or a JSON file: {error}") from None
        if not isinstance(content, dict):
            raise UsageError(f"--config is {word}, which holds a {type(content).__name__}, expected a JSON object")
        config |= content
    return config


def _describe_omitted(capture: Capture) -> Iterator[str]:
    """Yield one line per reason for which calls are not cases of the file, with their number."""
    by_reason: dict[str, Counter[str]] = {}
    for (function, reason), count in capture.left_out.items():
        if reason != _QUIET:
            by_reason.setdefault(reason, Counter())[function] += count
    for reason, functions in by_reason.items():
        names = shortened([*functions], _MAX_NAMES)
        yield f"  left out, as they {reason}: {counted(sum(functions.values()), 'call')} of {names}"
    for reason, count in capture.not_selected.items():
        yield f"  not selected, as they {reason}: {counted(count, 'call')}"


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write ``text`` to ``path`` atomically, after parsing it as a plan to be sure that it can be read."""
    try:
        parse_plan(text.encode(), path.name)
    except PlanError as error:
        raise InternalError(f"the captured file cannot be read as a plan: {error}") from None
    # A hidden file in the same folder, so that the replacement is atomic.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        # Checked before the model ran, too; something else may have written the file since.
        if path.exists() and not force:
            raise _file_exists(path)
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
