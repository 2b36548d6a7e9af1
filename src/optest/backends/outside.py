"""What the expected values of a case follow from beside its key: files of inputs, and code that is not optest's."""

from __future__ import annotations

import hashlib
from pathlib import Path

from optest.registry import file_of_module
from optest.spec import TestCase
from optest.store import path_of

__all__ = ["digest_of_outside"]


def digest_of_outside(case: TestCase) -> str:
    """A digest of the bytes of all of these, empty for a case whose key says everything."""
    files = [path for path in (*_data_files(case), *_code_files(case)) if path.is_file()]
    if not files:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(hashlib.blake2b(path.read_bytes(), digest_size=16).digest())
    return digest.hexdigest()


def _data_files(case: TestCase) -> list[Path]:
    fills = [argument.fill for argument in case.inputs if argument.fill.kind == "file"]
    return [path_of(case, str(fill.parameters.get("path", ""))) for fill in fills]


def _code_files(case: TestCase) -> list[Path]:
    hooks = (case.generator, case.reference or case.descriptor.reference)
    modules = [_module_of(hook) for hook in hooks if hook is not None]
    files = [file_of_module(each) for each in modules if each and each.partition(".")[0] != "optest"]
    return [Path(file) for file in files if file is not None]


def _module_of(hook: object) -> str:
    if isinstance(hook, str):
        return hook.partition(":")[0] if ":" in hook else hook.rpartition(".")[0]
    return str(getattr(hook, "__module__", "") or "")
