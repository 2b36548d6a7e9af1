"""What a result has to keep when the call is made again in another way; stated by operators and cases, as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from optest.errors import UnknownName, UsageError
from optest.spec.signature import Signature

REPEAT, STATELESS, BATCH, PERMUTATION = "repeat", "stateless", "batch", "permutation"
INVARIANTS = (REPEAT, STATELESS, BATCH, PERMUTATION)
"""``repeat``: the same call has the same result. ``stateless``: also after a call with other values. ``batch``: element
i of the outputs is the result of element i of the inputs alone. ``permutation``: permuted elements of the inputs
permute the outputs. Elements are those along the first dimension. They are asked in this order: what comes later also
shows what comes earlier."""
_OF_ELEMENTS = (BATCH, PERMUTATION)
_FORM = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """``inputs`` are the places of the inputs whose first dimension is the batch, () where inference finds them."""

    name: str
    inputs: tuple[int, ...] = ()


def read_invariants(texts: Iterable[str], signature: Signature) -> tuple[Invariant, ...]:
    """Read ``batch`` or ``batch(x, y)``, in the order in which they are asked.

    Raises:
        UnknownName: for an invariant, or an input, that does not exist.
        UsageError: for another form, or one that is stated twice.
    """
    if isinstance(texts, str):
        raise UsageError(f"invariants are {texts!r}, but should be a tuple of names")
    found = [_read(text, signature) for text in texts]
    names = [each.name for each in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"invariant {twice[0]} is stated twice")
    return tuple(sorted(found, key=lambda each: INVARIANTS.index(each.name)))


def _read(text: str, signature: Signature) -> Invariant:
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"invariant is {text!r}, but should look like batch or batch(input)")
    name, inputs = match.groups()
    if name not in INVARIANTS:
        raise UnknownName("invariant", name, INVARIANTS)
    if inputs is None:
        return Invariant(name=name)
    if name not in _OF_ELEMENTS:
        raise UsageError(f"invariant {name} is about whole calls; drop the inputs of {text!r}")
    places = [signature.locate(each.strip()) for each in inputs.split(",")]
    if any(side != "input" for side, _ in places):
        raise UsageError(f"invariant {text!r} names an output, but should name inputs")
    return Invariant(name=name, inputs=tuple(place for _, place in places))
