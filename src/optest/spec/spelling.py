"""Names and attributes of operators in other libraries, and their translation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from optest.spec.signature import Attribute, Signature
from optest.spec.tensors import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call of an operator by its canonical name; attributes that are missing have its defaults."""

    operator: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


Meaning: TypeAlias = Callable[[Sequence["TensorSpec | None"], Mapping[str, Any]], Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """An operator's name in another library, with that library's attributes and defaults.

    If only names differ, an alias is enough; a spelling is for other defaults (ONNX keeps reduced dimensions), other
    forms (padding as beginnings and ends), another order of the inputs, or one name for several operators (Conv).

    Attributes:
        operators: canonical names of the operators that it may mean, the most usual first.
        signature: tensors in the library's order: ``"X, W, B? -> Y"``.
        attributes: attributes of the library; a plan may set no others.
        meaning: function ``(input specs, attributes) -> Call``; raises :class:`UnfitArguments` for a call that none of
            the operators can do.
        inputs: for each input of the operator the index in this spelling; empty if the order is the same.
        description: meaning and unsupported parts, for the documentation.
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
        """Return the index in this spelling of the operator's input ``index``."""
        return self.inputs[index] if index < len(self.inputs) else index

    def in_order(self, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
        """Reorder inputs from the spelling's order to the operator's."""
        return [inputs[self.place_of(index)] for index in range(len(inputs))]
