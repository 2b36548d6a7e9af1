"""A call of an operator as another library writes it, and the same call in the operator's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from optest.spec.signature import Attribute, Signature
from optest.spec.tensors import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is called: an operator by its canonical name, with its own attributes; those left out have its defaults."""

    operator: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


Meaning: TypeAlias = Callable[[Sequence["TensorSpec | None"], Mapping[str, Any]], Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """A name that another library has for an operator, with that library's attributes and their defaults.

    An alias is enough where only names differ; a spelling is for the rest: other defaults (ONNX keeps reduced
    dimensions), other forms (padding as beginnings and ends), another order of the inputs, one name for several
    operators (Conv).

    Attributes:
        operators: canonical names of the operators that it may stand for, the most usual first.
        signature: its tensors in its own order: ``"X, W, B? -> Y"``.
        attributes: its own; a plan may state no others.
        meaning: ``(input specs, attributes) -> Call``; raises :class:`UnfitArguments` for what none of the operators
            can do.
        inputs: for each input of the operator the place of the spelling's; empty where the order is the same.
        description: what it stands for and what of it is refused.
    """

    name: str
    operators: tuple[str, ...]
    signature: str
    meaning: Meaning
    attributes: tuple[Attribute, ...] = ()
    inputs: tuple[int, ...] = ()
    description: str = ""

    @property
    def tensors(self) -> Signature:
        return Signature.parse(self.signature)

    def place_of(self, index: int) -> int:
        """Where the spelling has the operator's input ``index``."""
        return self.inputs[index] if index < len(self.inputs) else index

    def in_order(self, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
        """Inputs in the spelling's order as the operator has them."""
        return [inputs[self.place_of(index)] for index in range(len(inputs))]
