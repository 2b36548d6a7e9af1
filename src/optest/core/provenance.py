"""Where a result comes from: versions, host, and a fingerprint of everything that could change it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from operator import attrgetter
from os.path import normpath
from pathlib import Path
from typing import Any

from optest import __version__
from optest.backends import BackendDriver
from optest.backends.command_abilities import ReadsFiles
from optest.backends.golden_files import digest_of_file
from optest.registry import file_of_module, neighbours_of_module, version_of
from optest.spec import RunInfo, TestCase
from optest.store import RunDirectory


def versions(driver: BackendDriver) -> dict[str, str]:
    """Versions of optest, Python, NumPy, ml_dtypes and of what the driver computes with."""
    numbers = {"optest": __version__, "python": platform.python_version()}
    for package in ("numpy", "ml_dtypes"):
        numbers[package] = version_of(package) or "?"
    return {**numbers, **driver.versions()}


def run_info(driver: BackendDriver, directory: RunDirectory, **facts: Any) -> RunInfo:
    """What is known of a run of ``driver`` that begins now; ``facts`` are the other fields."""
    installed = versions(driver)
    return RunInfo(
        run_id=directory.id,
        started_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        directory=str(directory.path),
        optest_version=installed["optest"],
        versions=installed,
        host=host(),
        **facts,
    )


def host() -> dict[str, str | int]:
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count() or 0,
    }


def fingerprint(
    *,
    plans: Sequence[Path],
    cases: Sequence[TestCase],
    plugins: Iterable[str],
    driver: BackendDriver,
    options: Mapping[str, Any],
) -> dict[str, str]:
    """Return what a resumed run must find unchanged, by name: plans, plug-ins, command files, versions and the
    driver's ``options``.

    The first of ``plans`` is the one that was asked for, the others are included.
    """
    prints = {f"version of {name}": version for name, version in versions(driver).items()}
    prints |= {f"option {name}": str(value) for name, value in options.items()}
    for place, plan in enumerate(plans):
        prints[f"included plan {plan}" if place else "plan"] = digest_of_file(plan)
    for module in plugins:
        prints |= _prints_of_code(f"plug-in {module}", module)
    prints |= _prints_of_code(f"backend {driver.name}", type(driver).__module__)
    for hook in sorted(_hooks(cases)):
        module = hook.partition(":")[0] if ":" in hook else hook.rpartition(".")[0]
        prints |= _prints_of_code(f"code at {hook}", module)
    for path, may_be_built in sorted(_command_files(cases).items()):
        prints[f"{_BUILT if may_be_built and _is_binary(path) else 'command file '}{path}"] = digest_of_file(path)
    if isinstance(driver, ReadsFiles):
        prints |= {f"file {path}": digest_of_file(path) for path in driver.files_of(cases)}
    inputs_in_files = (
        Path(case.base_dir, str(argument.fill.parameters.get("path", "")))
        for case in cases
        for argument in case.inputs
        if argument.fill.kind == "file"
    )
    for path in sorted({path.resolve() for path in inputs_in_files if path.is_file()}):
        prints[f"data file {path}"] = digest_of_file(path)
    # Over everything that a case says but for where it was written. Cases of a product share most values, so that each
    # value is written out once; its identity stands for it, since the cases keep it.
    digest = hashlib.blake2b(digest_size=16)
    written: dict[tuple[int, ...], str] = {}
    for case in cases:
        values = _beside_the_key(case)
        identities = tuple(map(id, values))
        if identities not in written:
            if len(written) >= MAX_WRITTEN:
                written.clear()
            written[identities] = repr(values)
        digest.update(f"{case.id!r}{case.key}{written[identities]}".encode())
    prints["the selected cases or what is allowed for them"] = digest.hexdigest()
    return prints


_IMPORT_PATH = re.compile(r"([A-Za-z_][\w.]*|.*\.py):[A-Za-z_][\w.]*")


def _hooks(cases: Sequence[TestCase]) -> set[str]:
    """Import paths of generators, references, error terms and the backend's functions that are not optest's own."""
    paths: set[str] = set()
    for case in cases:
        options = case.backend_config.get(case.backend.name, {}).values()
        paths.update(each for each in options if isinstance(each, str) and _IMPORT_PATH.fullmatch(each))
        descriptor = case.descriptor
        for hook in (case.generator, case.reference, descriptor.reference, descriptor.terms, descriptor.infer):
            path = f"{getattr(hook, '__module__', '')}:" if callable(hook) else str(hook or "")
            if path.strip(":") and not path.startswith("optest."):
                paths.add(path)
    return paths


def _prints_of_code(what: str, module: str) -> dict[str, str]:
    """The module's file, and the modules of its own that it brings: those of its package or, without one, its folder.

    What is installed beside it counts by its version.
    """
    file = file_of_module(module)
    if file is None:
        return {}
    prints = {what: digest_of_file(Path(file))}
    if module.partition(".")[0] == "optest":
        return prints
    for neighbour, path in neighbours_of_module(module):
        prints[f"{what}, its module {neighbour}"] = digest_of_file(path)
    return prints


MAX_WRITTEN = 10_000
_beside_the_key = attrgetter(
    "descriptor.signature",
    "backend",
    "backend_config",
    "mode",
    "reference",
    "tolerances",
    "timeout_s",
    "retries",
    "priority",
    "skip",
    "xfail",
    "expects_error",
    "invariants",
    "tags",
)
"""What a case says that its key does not tell; not where it was written, nor what it is for."""


_BUILT = "built file "


def _command_files(cases: Sequence[TestCase]) -> dict[Path, bool]:
    """Files that the commands of the cases name, as far as they exist, and whether a build may have made them.

    The case's own tensors are none, though a command may name them as well.
    """
    files: dict[Path, bool] = {}
    for case in cases:
        config = case.backend_config.get(case.backend.name)
        if not config:
            continue
        folder = Path(case.base_dir) / str(config.get("workdir", ""))
        # Files that tensors are exchanged in, by their stated paths and by those of tensors that are not mentioned.
        names = [f"input/{argument.path}.bin" for argument in case.inputs]
        names += [f"output/output{index}.bin" for index in range(len(case.outputs))]
        names += [name for key in ("inputs", "outputs") for name in _words(config.get(key))]
        tensors = {normpath(folder / name) for name in names}
        for step in ("build", "command", "prepare", "cleanup"):
            for word in _words(config.get(step)):
                path = folder / word.replace("{workdir}", ".")
                if len(word) < 256 and normpath(path) not in tensors and path.is_file():
                    files.setdefault(path.resolve(), bool(config.get("build")) and step != "build")
        for path in (folder / word for word in _words(config.get("golden")) if len(word) < 256):
            # expected values that were there before the run; those that a run dumps are made from the reference
            if path.is_file() and not path.with_name(f"{path.name}.key").exists():
                files[path.resolve()] = False
    return files


def _words(step: object) -> Iterable[str]:
    if isinstance(step, str):
        yield step
    elif isinstance(step, Mapping):
        for part in step.values():
            yield from _words(part)
    elif isinstance(step, (list, tuple)):
        for part in step:
            yield from _words(part)


def _is_binary(path: Path) -> bool:
    with path.open("rb") as stream:
        return b"\0" in stream.read(4096)


def changed(before: Mapping[str, str], now: Mapping[str, str], until: float = 0.0) -> list[str]:
    """What differs between two fingerprints, in words.

    A program that a build makes is another one as soon as the run has built it; it has changed if it was written after
    ``until``, when the run wrote its last result.
    """
    differences = []
    for name in sorted(before.keys() | now.keys()):
        if name.startswith(_BUILT) and name in now and Path(name.removeprefix(_BUILT)).stat().st_mtime <= until:
            continue
        if name not in now:
            differences.append(f"{name} is gone")
        elif name not in before:
            differences.append(f"{name} is new")
        elif before[name] != now[name]:
            short = name.startswith(("version", "option"))
            differences.append(f"{name} is {now[name]}, but was {before[name]}" if short else f"{name} has changed")
    return differences
