"""What a call of torch may be named, and what was probably meant by another name."""

from __future__ import annotations

import re

__all__ = ["is_dotted", "misnamed"]

_NAME = re.compile(r"torch(\.[A-Za-z_]\w*)+", re.ASCII)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SHORT = {
    "F": "torch.nn.functional", "functional": "torch.nn.functional", "aten": "torch.ops.aten",
    "prims": "torch.ops.prims", "th": "torch", "operator": "torch",
}  # fmt: skip
"""What models import parts of torch as; torch has Python's operators under its own name."""

_PARTS = ("Tensor", "_C", "_VF", "fft", "linalg", "masked", "nested", "nn", "ops", "signal", "sparse", "special")
_ALLOWED = (
    "a case is one call of torch: torch.add, torch.nn.functional.relu, torch.Tensor.view, torch.ops.aten.add.Tensor"
)


def is_dotted(name: str) -> bool:
    """Whether it is a dotted name at all, of whatever library."""
    return _DOTTED.fullmatch(name) is not None


def misnamed(name: str) -> tuple[str, str] | None:
    """Why it is no dotted name of torch's, and what was probably meant or what is allowed; None if it is one.

    Whether torch has it is for torch to say.
    """
    full, is_known = _in_full(name)
    if _NAME.fullmatch(full) and not is_known:
        return None
    if full.startswith("torch.nn.") and full.rpartition(".")[2][0].isupper():
        hint = "a module of torch.nn is no call: write the function of torch.nn.functional that it makes"
    else:
        hint = f"op: {full}" if is_known else _ALLOWED if is_dotted(name) else "op: torch.add"
    return f"op is {name!r}, but should be a dotted name of torch's", hint


def _in_full(op: str) -> tuple[str, bool]:
    """The name as torch has it, and whether it was written shorter, ``F.relu`` or ``torch.F.relu``."""
    if not _DOTTED.fullmatch(op):
        return op, False
    head, _, rest = op.removeprefix("torch.").partition(".")
    if head in _SHORT and rest and (head != "functional" or op == f"functional.{rest}"):
        return f"{_SHORT[head]}.{rest}", True
    if op.startswith("torch."):
        return op, False
    if not rest:
        return (f"torch.{op}", True) if op != "torch" else (op, False)
    return (f"torch.{op}", True) if head in _PARTS else (op, False)
