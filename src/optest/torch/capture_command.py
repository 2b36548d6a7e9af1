"""``optest capture``: the calls of a model as a file of model cases."""

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
from optest.torch.cases import names_in
from optest.torch.model_cases.writing import text_of_model_file

if TYPE_CHECKING:
    from optest.torch.capture.running import Capture

_QUIET = "compute nothing"
_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCapture:
    """The file that was written and what it was made of."""

    path: str
    model: str
    made: Capture
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Why a case of the file will not run, by its name."""

    def lines(self) -> Iterator[str]:
        """What was written, what was not, and what comes next."""
        made = self.made
        operators = len({case["op"] for case in made.cases})
        yield (
            f"{self.path}: {counted(len(made.cases), 'case')} of {counted(made.calls, 'call')}, "
            f"{counted(operators, 'operator')}, model {self.model}"
        )
        yield from _beside(made)
        for name, why in self.not_run.items():
            yield f"  will not run: {name}: {why}"
        yield "next:"
        yield f"  optest run --plan {shlex.quote(self.path)}"
        yield f"  optest run --plan {shlex.quote(self.path)} --compile-backend inductor"


def require_writable(path: str, *, force: bool) -> None:
    """Refuse what cannot be written before a model runs.

    Raises:
        UsageError: for a name that no plan has, a folder that is not there, and a file that is.
    """
    file = Path(path)
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"-o is {path}, expected a file that ends in .yaml")
    if file.is_dir():
        raise UsageError(f"-o is {path}, which is a folder")
    if not file.parent.is_dir():
        raise UsageError(f"-o is {path}, but there is no folder {file.parent}")
    if file.exists() and not force:
        raise UsageError(f"{path} is there already, and nothing was written; --force writes over it")


def capture(
    what: str,
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
    """Run ``what`` once and write its calls to ``output``.

    Raises:
        UsageError: if it cannot be found, run or written.
        NothingSelected: if it makes no call that is wanted.
        Unavailable: if torch, or what a model needs, is not installed.
    """
    require_writable(output, force=force)
    load_extensions(None)  # a plug-in that cannot be loaded is told before the model runs
    try:
        selection_of = load_object("optest.torch.capture.watching:Selection")  # it brings torch
        captured = load_object("optest.torch.capture.running:captured")
    except Unavailable as error:
        raise Unavailable("capture", error.remedy) from None

    selection = selection_of(ops=names_in(ops), min_bytes=min_bytes, max_bytes=max_bytes)
    made = captured(what, selection=selection, level=level, seed=seed, shrink_to=shrink_to, config=_config(config))
    if not made.cases:
        lines = list(_beside(made)) or ["  it made no call of torch's: does the function run the model?"]
        raise NothingSelected("\n".join([f"{what} made no call that becomes a case; nothing was written", *lines]))
    name = model or made.stem
    text = text_of_model_file(
        name,
        made.cases,
        defaults={"dtype": made.dtype, "seed": seed},
        comment=[f"Calls of torch that {what.rpartition('/')[2]} makes, written by `optest capture`."],
    )
    _write(Path(output), text, force=force)
    return WrittenCapture(path=output, model=name, made=made)


def capture_command(context: CommandContext, **given: Any) -> int:
    """What the command line asks for, as :data:`optest.torch.guest.GUEST` declares it.

    Raises:
        OptestError: as :func:`capture`.
    """
    written = capture(**given)
    cases, driver = context.cases(plan=written.path, backend="torch")
    verdicts = {case.name: why_not_run(case, driver) for case in cases}
    not_run = {name: verdict.message for name, verdict in verdicts.items() if verdict is not None}
    for line in replace(written, not_run=not_run).lines():
        context.echo(line)
    return 0


def _config(words: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` (a JSON value or text) and JSON files, later ones over earlier ones."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            found[key] = json_or_text(value)
            continue
        try:
            stated = json.loads(Path(word).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--config is {word}, which is no file of JSON: {error}\n  or state KEY=VALUE") from None
        if not isinstance(stated, dict):
            raise UsageError(f"--config is {word}, which should hold a JSON object")
        found |= stated
    return found


def _beside(made: Capture) -> Iterator[str]:
    """What was seen and is no case of the file, and why."""
    by_reason: dict[str, Counter[str]] = {}
    for (function, reason), count in made.left_out.items():
        if reason != _QUIET:
            by_reason.setdefault(reason, Counter())[function] += count
    for reason, functions in by_reason.items():
        names = shortened([*functions], _SHOWN)
        yield f"  left out, as they {reason}: {counted(sum(functions.values()), 'call')} of {names}"
    for reason, count in made.not_selected.items():
        yield f"  not asked for, as they {reason}: {counted(count, 'call')}"


def _write(path: Path, text: str, *, force: bool) -> None:
    """What is written is read first, and a file is written whole or not at all."""
    try:
        parse_plan(text.encode(), path.name)
    except PlanError as error:
        raise InternalError(f"the file that was captured cannot be read: {error}") from None
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        if path.exists() and not force:
            raise UsageError(f"{path} is there already, and nothing was written; --force writes over it")
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
