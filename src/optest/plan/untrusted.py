"""``--untrusted``: refuse code that only the plan names, and paths that leave the plan's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from optest.plan.layers import Entry, PlanContext
from optest.plan.problems import Place
from optest.plan.values import shown
from optest.plan.yaml_source import Path
from optest.store import PathError, resolve_path

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

# Backend options that start programs, change what these do, or choose the C code that is loaded and its signatures.
RUNS_CODE = (
    *("command", "build", "prepare", "cleanup", "pre_run", "post_run", "env"),
    *("library", "mapping", "profile", "headers"),
)


def allowed_folders(document: PlanDocument | None, flags: Entry) -> tuple[str, ...]:
    """Return the folder of an untrusted plan and the paths in the command line's options; () without a plan."""
    if document is None:
        return ()
    folder = os.path.realpath(os.path.dirname(document.path) or ".")
    configs = flags.get("backend_config", {}).values()
    paths = [path for options in configs for key, value in options.items() for path in _paths_in(key, value)]
    if "generator" in flags and flags["generator"].every is not None:
        paths.append(str(flags["generator"].every.parameters.get("path", "")))
    return tuple(dict.fromkeys((folder, *(os.path.join(folder, path) for path in paths if path))))


def _paths_in(key: str, value: Any) -> Iterator[str]:
    """Yield each text of an option that may be a path, up to its first ``{token}``; words of commands are no paths."""
    if isinstance(value, Mapping):
        yield from (path for nested in value.values() for path in _paths_in(key, nested))
    elif isinstance(value, (list, tuple)):
        yield from (path for item in value for path in _paths_in(key, item))
    elif isinstance(value, str) and key not in RUNS_CODE:
        fixed, token, _ = value.partition("{")
        yield os.path.dirname(fixed) if token else fixed


def refuse_untrusted(context: PlanContext, *, is_top: bool) -> None:
    """Note a problem for all code that an untrusted plan names, and for paths outside the allowed folders."""
    document, ledger = context.document, context.ledger
    if document is None or not context.allowed_folders:
        return
    for path, part, combination in document.parts():
        with ledger.reading(document.source, combination):
            for place, code in _code_named_in(part, path):
                words = code if isinstance(code, list) else [code]
                command = " ".join(words) if all(isinstance(word, str) for word in words) else shown(code)
                ledger.problem(place, f"--untrusted refuses to run code that the plan names: {command}")
            # The backend itself refuses files in its options, by the folders of the case.
            # A fill may read a file.
            choice = part.get("generator")
            for fill in () if choice is None else (choice.every, *choice.by_tensor.values()):
                name = fill.parameters.get("path") if fill is not None and fill.kind == "file" else None
                if isinstance(name, str):
                    _refuse_path(name, (*path, "generator"), context)
    # Reports of included plans are not written.
    if is_top and isinstance(document.report.get("path"), str):
        _refuse_path(document.report["path"], ("report", "path"), context)


def _refuse_path(name: str, place: Place, context: PlanContext) -> None:
    try:
        resolve_path(context.base_dir, name, context.allowed_folders)
    except PathError as error:
        context.ledger.problem(place, str(error))


def _code_named_in(entry: Entry, path: Path) -> Iterator[tuple[Path, Any]]:
    generator = entry.get("generator")
    if generator is not None and generator.path is not None:
        yield (*path, "generator"), generator.path
    if "reference" in entry:
        yield (*path, "reference"), entry["reference"]
    for backend, options in entry.get("backend_config", {}).items():
        for key in RUNS_CODE:
            if key in options:
                yield (*path, "backend_config", backend, key), options[key]
