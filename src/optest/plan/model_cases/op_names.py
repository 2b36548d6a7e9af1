"""What ``op`` may be, and what was probably meant by a name that it cannot be."""

from __future__ import annotations

import re

from optest.plan.forms import Misfit

__all__ = ["require_name_of_torch"]

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


def require_name_of_torch(op: str) -> None:
    """Refuse what is no dotted name of torch's; whether torch has it is asked later, of torch.

    Raises:
        Misfit: with the name that was probably meant, or with what is allowed.
    """
    full, is_known = _in_full(op)
    if _NAME.fullmatch(full) and not is_known:
        return
    if full.startswith("torch.nn.") and full.rpartition(".")[2][0].isupper():
        hint = "a module of torch.nn is no call: write the function of torch.nn.functional that it makes"
    else:
        hint = f"op: {full}" if is_known else _ALLOWED if _DOTTED.fullmatch(op) else "op: torch.add"
    raise Misfit(f"op is {op!r}, but should be a dotted name of torch's", path=("op",), hint=hint)


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
