"""Invariants of results under repeated or changed calls; operators and cases declare them as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from optest.errors import UnknownName, UsageError
from optest.spec.signature import Signature

REPEAT, STATELESS, BATCH, PERMUTATION = "repeat", "stateless", "batch", "permutation"
# `repeat`: the same call has the same result. `stateless`: also after a call with other values. `batch`: element i of
# the outputs depends only on element i of the inputs. `permutation`: permuted elements of the inputs permute the
# outputs. Elements are those along the first dimension. They are checked in this order: a violation of an earlier one
# also violates the later ones.
INVARIANTS = (REPEAT, STATELESS, BATCH, PERMUTATION)
_OF_ELEMENTS = (BATCH, PERMUTATION)
_FORM = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One declared invariant; ``inputs`` are the indices of the inputs with the batch as first dimension.

    With ``inputs`` () the batched inputs are determined by shape inference.
    """

    name: str
    inputs: tuple[int, ...] = ()


def read_invariants(texts: Iterable[str], signature: Signature) -> tuple[Invariant, ...]:
    """Parse texts such as ``batch`` or ``batch(x, y)``; return the invariants in the order of :data:`INVARIANTS`.

    Raises:
        UnknownName: for an invariant, or an input, that does not exist.
        UsageError: for text of another form, an output, or an invariant that occurs twice.
    """
    if isinstance(texts, str):
        raise UsageError(f"invariants are {texts!r}, expected a tuple of names")
    invariants = [_read_invariant(text, signature) for text in texts]
    names = [invariant.name for invariant in invariants]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"invariant {twice[0]} occurs twice")
    return tuple(sorted(invariants, key=lambda invariant: INVARIANTS.index(invariant.name)))


def _read_invariant(text: str, signature: Signature) -> Invariant:
    """Parse one invariant; only ``batch`` and ``permutation`` may name inputs."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"invariant is {text!r}, expected a text like batch or batch(input)")
    name, inputs = match.groups()
    if name not in INVARIANTS:
        raise UnknownName("invariant", name, INVARIANTS)
    if inputs is None:
        return Invariant(name=name)
    if name not in _OF_ELEMENTS:
        raise UsageError(f"invariant {name} applies to whole calls; remove the inputs of {text!r}")
    tensors = [signature.locate(tensor.strip()) for tensor in inputs.split(",")]
    if any(side != "input" for side, _ in tensors):
        raise UsageError(f"invariant {text!r} names an output, expected inputs")
    return Invariant(name=name, inputs=tuple(index for _, index in tensors))
