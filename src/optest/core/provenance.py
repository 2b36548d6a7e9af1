"""Provenance of results: versions, host, and a fingerprint of everything that could change a result."""

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
from optest.backends.golden_files import digest_of_file
from optest.registry import file_of_module, neighbours_of_module, version_of
from optest.spec import RunInfo, TestCase
from optest.store import RunDirectory


def versions(driver: BackendDriver) -> dict[str, str]:
    """Return the versions of optest, Python, NumPy, ml_dtypes and of the driver's libraries, by name."""
    numbers = {"optest": __version__, "python": platform.python_version()}
    for package in ("numpy", "ml_dtypes"):
        numbers[package] = version_of(package) or "?"
    return {**numbers, **driver.versions()}


def run_info(driver: BackendDriver, directory: RunDirectory, **facts: Any) -> RunInfo:
    """Build the RunInfo of a run of ``driver`` that begins now; ``facts`` are its other fields."""
    installed = versions(driver)
    return RunInfo(
        run_id=directory.id,
        started_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        directory=str(directory.path),
        optest_version=installed["optest"],
        versions=installed,
        host={
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count() or 0,
        },
        **facts,
    )


def fingerprint(
    *,
    plans: Sequence[Path],
    cases: Sequence[TestCase],
    plugins: Iterable[str],
    driver: BackendDriver,
    options: Mapping[str, Any],
) -> dict[str, str]:
    """Return digests and versions, by name, of everything that a resumed run must find unchanged.

    These are plans, plug-ins, the code of the backend and of user-defined hooks, files that commands name, data files,
    versions, the driver's ``options`` and the cases. The first of ``plans`` is the requested one; it includes the
    others.
    """
    prints = {f"version of {name}": version for name, version in versions(driver).items()}
    prints |= {f"option {name}": str(value) for name, value in options.items()}
    for index, plan in enumerate(plans):
        prints[f"included plan {plan}" if index else "plan"] = digest_of_file(plan)
    for module in plugins:
        prints |= _prints_of_code(f"plug-in {module}", module)
    prints |= _prints_of_code(f"backend {driver.name}", type(driver).__module__)
    for hook in sorted(_hooks(cases)):
        module = hook.partition(":")[0] if ":" in hook else hook.rpartition(".")[0]
        prints |= _prints_of_code(f"code at {hook}", module)
    for path, may_be_built in sorted(_command_files(cases).items()):
        prints[f"{_BUILT if may_be_built and _is_binary(path) else 'command file '}{path}"] = digest_of_file(path)
    prints |= {f"file {path}": digest_of_file(path) for path in driver.files_of(cases)}
    inputs_in_files = (
        Path(case.base_dir, str(argument.fill.parameters.get("path", "")))
        for case in cases
        for argument in case.inputs
        if argument.fill.kind == "file"
    )
    for path in sorted({path.resolve() for path in inputs_in_files if path.is_file()}):
        prints[f"data file {path}"] = digest_of_file(path)
    prints["the selected cases or their settings"] = _digest_of_cases(cases)
    return prints


def _digest_of_cases(cases: Sequence[TestCase]) -> str:
    """Return a digest of all fields of the cases except their locations and purposes."""
    # Cases of a product share most values. Their text is cached by identity, which is safe: the cases keep the values.
    digest = hashlib.blake2b(digest_size=16)
    texts: dict[tuple[int, ...], str] = {}
    for case in cases:
        values = _fields_not_in_key(case)
        identities = tuple(map(id, values))
        if identities not in texts:
            if len(texts) >= MAX_WRITTEN:
                texts.clear()
            texts[identities] = repr(values)
        digest.update(f"{case.id!r}{case.key}{texts[identities]}".encode())
    return digest.hexdigest()


_IMPORT_PATH = re.compile(r"([A-Za-z_][\w.]*|.*\.py):[A-Za-z_][\w.]*")


def _hooks(cases: Sequence[TestCase]) -> set[str]:
    """Return the import paths of user-defined generators, references, error terms, `infer` and backend functions."""
    paths: set[str] = set()
    for case in cases:
        options = case.backend_config.get(case.backend.name, {}).values()
        paths.update(value for value in options if isinstance(value, str) and _IMPORT_PATH.fullmatch(value))
        descriptor = case.descriptor
        for hook in (case.generator, case.reference, descriptor.reference, descriptor.terms, descriptor.infer):
            path = f"{getattr(hook, '__module__', '')}:" if callable(hook) else str(hook or "")
            if path.strip(":") and not path.startswith("optest."):
                paths.add(path)
    return paths


def _prints_of_code(name: str, module: str) -> dict[str, str]:
    """Return digests of a module's file and, unless it is optest's, of the modules next to it, by name."""
    file = file_of_module(module)
    if file is None:
        return {}
    prints = {name: digest_of_file(Path(file))}
    if module.partition(".")[0] == "optest":
        return prints
    for neighbour, path in neighbours_of_module(module):
        prints[f"{name}, its module {neighbour}"] = digest_of_file(path)
    return prints


MAX_WRITTEN = 10_000
# Fields that the key of a case does not cover, without its source line and description.
_fields_not_in_key = attrgetter(
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
_BUILT = "built file "


def _command_files(cases: Sequence[TestCase]) -> dict[Path, bool]:
    """Return the existing files that commands and ``golden`` name, each with whether a build step may create it.

    Tensors of the call and golden files that a dump wrote are left out.
    """
    files: dict[Path, bool] = {}
    for case in cases:
        config = case.backend_config.get(case.backend.name)
        if not config:
            continue
        folder = Path(case.base_dir) / str(config.get("workdir", ""))
        # Files of tensors: by default paths and by those that the case sets.
        names = [f"input/{argument.path}.bin" for argument in case.inputs]
        names += [f"output/output{index}.bin" for index in range(len(case.outputs))]
        names += [name for key in ("inputs", "outputs") for name in _strings_in(config.get(key))]
        tensors = {normpath(folder / name) for name in names}
        for step in ("build", "command", "prepare", "cleanup"):
            for word in _strings_in(config.get(step)):
                path = folder / word.replace("{workdir}", ".")
                # a longer word is no path, and the system would raise ENAMETOOLONG
                if len(word) < 256 and normpath(path) not in tensors and path.is_file():
                    files.setdefault(path.resolve(), bool(config.get("build")) and step != "build")
        for path in (folder / word for word in _strings_in(config.get("golden")) if len(word) < 256):
            # A golden file with a key file next to it was dumped by a run, from the reference.
            if path.is_file() and not path.with_name(f"{path.name}.key").exists():
                files[path.resolve()] = False
    return files


def _strings_in(value: object) -> Iterable[str]:
    """Yield the strings in nested lists, tuples and mapping values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings_in(part)


def _is_binary(path: Path) -> bool:
    with path.open("rb") as stream:
        return b"\0" in stream.read(4096)


def changed(before: Mapping[str, str], now: Mapping[str, str], until: float = 0.0) -> list[str]:
    """Return one sentence for each difference between two fingerprints.

    A built file that was last modified by the time ``until``, at which the run wrote its last result, is not compared.
    """
    differences = []
    for name in sorted(before.keys() | now.keys()):
        # the run itself built the file, after the first fingerprint
        if name.startswith(_BUILT) and name in now and Path(name.removeprefix(_BUILT)).stat().st_mtime <= until:
            continue
        if name not in now:
            differences.append(f"{name} no longer exists")
        elif name not in before:
            differences.append(f"{name} is new")
        elif before[name] != now[name]:
            short = name.startswith(("version", "option"))
            differences.append(f"{name} is {now[name]}, but was {before[name]}" if short else f"{name} has changed")
    return differences
