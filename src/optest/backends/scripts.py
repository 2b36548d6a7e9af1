"""How a driver says what it runs, so that a person without optest can run the same: lines of Python.

A driver is asked for a :class:`Script` by ``BackendDriver.script``; the frame around it (saved tensors, what is
compared with what) is put there by :mod:`optest.api.scripts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.spec import TensorSpec

__all__ = ["Script", "ScriptInput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptInput:
    """One input of the case, as a script gets at it.

    ``name`` is the variable to bind (``input0``). ``source`` is an expression for a NumPy array: the tensor itself if
    it is dense, else its one-dimensional storage; element types that NumPy lacks come as unsigned integers of their
    bits. ``spec`` has the layout, ``array`` the values.
    """

    name: str
    source: str
    spec: TensorSpec
    array: Any

    @property
    def is_numpys(self) -> bool:
        """Whether NumPy has the element type; others need ml_dtypes for :attr:`array_source`."""
        return bool(self.array.dtype.isbuiltin == 1)

    @property
    def array_source(self) -> str:
        """An expression for the array as ``run`` gets it, in its element type and strides."""
        text = self.source if self.is_numpys else f"{self.source}.view(ml_dtypes.{self.spec.dtype.name})"
        if self.spec.is_dense:
            return text
        strides = tuple(stride * self.array.itemsize for stride in self.spec.strides or ())
        start = f"[{self.spec.offset}:]" if self.spec.offset else ""
        return f"np.lib.stride_tricks.as_strided({text}{start}, {self.spec.shape}, {strides})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What to import, the lines that end with the outputs, and an expression for each output.

    An output expression is anything that takes an index and gives what ``float`` or ``int`` takes. ``needs`` are the
    packages beside the standard library; ``arrays`` are saved with the inputs, for ``saved["name"]`` in the lines.
    ``numpy`` and ``Path`` are imported as ``np`` and ``Path`` already, ``ml_dtypes`` where a line uses it.
    """

    imports: Sequence[str] = ()
    lines: Sequence[str]
    outputs: Sequence[str]
    needs: Sequence[str] = ()
    arrays: Mapping[str, Any] = field(default_factory=dict)
