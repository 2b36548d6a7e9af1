"""Golden files: expected values that a command stores, and key files that show which case they belong to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from optest.backends.command_config import TensorFile
from optest.backends.numpy_reference import reference_label
from optest.backends.tensor_files import read_tensor, write_tensor
from optest.numerics import Array, widen
from optest.registry import file_of_module
from optest.spec import Fault, Reason, TestCase
from optest.store import path_of


class GoldenState(Enum):
    """State of a golden file; a ``.key`` file next to it names the case that it belongs to.

    The first word of a ``.key`` file is the case key. Files of optest have further words: the reference that computed
    the values, the digest of the golden file's bytes, and one of the other files that the values depend on.
    """

    MISSING = "does not exist"
    STALE = "belongs to another case, seed or reference, or to other inputs"
    CHANGED = "has changed since its .key file was written"
    UNVOUCHED = "has no .key file, so it may belong to other inputs"
    FRESH = "belongs to this case"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of golden values: case key, reference, and a digest of the files that the key does not cover."""

    key: str
    reference: str
    outside: str = ""

    @classmethod
    def of(cls, case: TestCase) -> Origin:
        return cls(key=case.key, reference=reference_label(case), outside=_digest_of_files(case))


def golden_state(path: Path, origin: Origin) -> GoldenState:
    if not path.is_file():
        return GoldenState.MISSING
    if not key_file(path).is_file():
        return GoldenState.UNVOUCHED
    # A key file of a user may have one word: then only the case key is compared.
    key, reference, digest, outside, *_ = (*key_file(path).read_text(encoding="utf-8").split(), "", "", "", "")
    if key != origin.key or (reference and (reference, outside) != (origin.reference, origin.outside)):
        return GoldenState.STALE
    return GoldenState.CHANGED if digest and digest != digest_of_file(path) else GoldenState.FRESH


def read_golden(file: TensorFile, path: Path) -> Array:
    """Return expected values, rounded floats in the file's dtype; raise Fault BAD_CASE for a file of the wrong size."""
    try:
        values = read_tensor(file, path)
    except Fault as fault:
        raise Fault(Reason.BAD_CASE, f"golden file of {fault.message}", details=fault.details) from None
    return values if file.dtype.is_inexact else widen(values)


def write_golden(file: TensorFile, path: Path, array: Array, origin: Origin) -> None:
    """Write expected values, and their origin into the key file."""
    write_tensor(file, path, array)
    words = f"{origin.key} {origin.reference} {digest_of_file(path)} {origin.outside}".strip()
    key_file(path).write_text(f"{words}\n", encoding="utf-8")


def digest_of_file(path: Path) -> str:
    """Return the BLAKE2b digest of the content of a file: 16 bytes, as hexadecimal text."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def key_file(path: Path) -> Path:
    """Return the path of the key file of a golden file, which is next to it."""
    return path.with_name(f"{path.name}.key")


def _digest_of_files(case: TestCase) -> str:
    """Return a digest of the data files and user code that expected values depend on in addition to the case key; "" if
    there are none."""
    fills = [argument.fill for argument in case.inputs if argument.fill.kind == "file"]
    data = [path_of(case, str(fill.parameters.get("path", ""))) for fill in fills]
    hooks = (case.generator, case.reference or case.descriptor.reference)
    modules = [_module_of(hook) for hook in hooks if hook is not None]
    code = [file_of_module(module) for module in modules if module and module.partition(".")[0] != "optest"]
    files = [path for path in (*data, *map(Path, filter(None, code))) if path.is_file()]
    if not files:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(hashlib.blake2b(path.read_bytes(), digest_size=16).digest())
    return digest.hexdigest()


def _module_of(hook: object) -> str:
    if isinstance(hook, str):
        return hook.partition(":")[0] if ":" in hook else hook.rpartition(".")[0]
    return str(getattr(hook, "__module__", "") or "")
