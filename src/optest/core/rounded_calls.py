"""A float64 call that is evaluated several times, with inputs and steps that are off by about one rounding.

:mod:`optest.core.closeness` derives bounds from it for functions without a rule. ``evaluate`` runs the call and rounds
its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np

from optest.numerics import Array, dtype_of, widen

_DOUBLE = 2.0**-52
_SIZES = 1 << 20

# Number of elements drawn at once: they fit into a cache, and no thread has to be waited for.
_BLOCK = 1 << 14

_WORD = np.uint64

# Constants of SplitMix64 (Steele, Lea, Flood 2014) with the finaliser "variant 13" of Stafford.
_INCREMENT, _FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB


def roundings(name: str, shape: Sequence[int]) -> Array:
    """Return random numbers from 1/2 to 3/2 of either sign in float64, seeded by a name."""
    # Sizes differ, so that no two errors cancel exactly.
    seed = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
    count = prod(shape)
    drawn = np.empty(count)
    for start in range(0, count, _BLOCK):  # several times faster than all at once
        words = mixed_words(seed, min(_BLOCK, count - start), start)
        size = 0.5 + (words & _WORD(_SIZES - 1)).astype(np.float64) / _SIZES
        drawn[start : start + _BLOCK] = np.where(words >> _WORD(63), size, -size)
    return drawn.reshape(tuple(shape))


def mixed_words(seed: int, count: int, start: int = 0) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return ``count`` random words; word ``start + i`` depends only on the seed and its number, modulo 2**64."""
    with np.errstate(over="ignore"):
        words = np.arange(start + 1, start + count + 1, dtype=_WORD) * _WORD(_INCREMENT) + _WORD(seed)
        words = (words ^ (words >> _WORD(30))) * _WORD(_FIRST)
        words = (words ^ (words >> _WORD(27))) * _WORD(_SECOND)
        mixed: np.ndarray[Any, np.dtype[np.uint64]] = words ^ (words >> _WORD(31))
    return mixed


@dataclass(frozen=True, slots=True)
class Rounding:
    """Error of every step of a call: a ``share`` of the ``unit`` roundoff, up or down as ``name`` seeds it.

    ``least`` is half of the smallest number of the dtype, 0 if no value is ever so small.
    """

    unit: float
    name: str
    share: float
    least: float
    # Divide operators into their known steps; else each operator is one step.
    takes_apart: bool = True


def off_by_a_rounding(parts: Sequence[Array], drawn: Array, off: float, unit: float, least: float) -> Array:
    """Return factors that make each value off by a rounding, 1 for values that the dtype holds exactly."""
    # ``parts`` are the flat values, or their real and imaginary parts; ``drawn``, whose memory is reused, has the signs
    # and sizes of the errors, ``off`` scales them.
    factors = drawn.reshape(-1)
    if not unit:
        factors[...] = 1.0
        return drawn
    with np.errstate(all="ignore"):
        for start in range(0, len(factors), _BLOCK):
            blocks = [each[start : start + _BLOCK] for each in parts]
            factor = factors[start : start + _BLOCK]
            factor *= off
            sizes = np.abs(blocks[0]) if len(blocks) == 1 else np.hypot(*blocks)
            is_low = bool(np.any(sizes * unit < least))
            if is_low:
                factor *= np.clip(least / sizes, unit, 1.0) / unit
            factor[np.logical_and.reduce([_is_held(each, unit, least if is_low else 0.0) for each in blocks])] = 0.0
            factor += 1.0
    return drawn


def _is_held(values: Any, unit: float, least: float) -> Any:
    """Return a mask of values that a dtype of this unit roundoff holds exactly, such as small integers."""
    shifted = values * (unit / _DOUBLE * 2.0 + 1.0)  # drops excess digits
    held = shifted - (shifted - values) == values
    if not least:
        return held
    is_low = np.abs(values) * unit < least
    return held & (~is_low | (np.remainder(values, 2.0 * least) == 0.0))


# Seeds of the draws, and their signs. For every element a number from 1/2 to 3/2 of a rounding is drawn; the first draw
# is used with both signs, so that each element is moved up once and down once at least. The root of the mean square
# of nine results is known to about a quarter (1/√18 where they are normal).
_DRAWS = ((0, 1.0), (0, -1.0), *((draw, 1.0) for draw in range(1, 8)))

# Function of the inputs, which it widens to float64, and the rounding of each step, if any; returns the outputs.
Evaluate = Callable[[Sequence[Array], "Rounding | None"], list[Array]]


@dataclass(frozen=True, slots=True)
class RoundedCall:
    """A call in float64 whose numbers are moved by about one rounding.

    ``units`` are the unit roundoffs of its inputs, ``step`` is that of its steps, the coarsest of them, and ``least``
    half of the smallest number of that dtype.
    """

    evaluate: Evaluate
    inputs: Sequence[Array]
    units: Sequence[float]
    step: float
    least: float

    @classmethod
    def of(cls, evaluate: Evaluate, inputs: Sequence[Array], actual: Sequence[Array]) -> RoundedCall:
        """Build a call whose units and step follow from the dtypes of its inputs and actual outputs."""
        # Results coarser than every input are those of a call with an explicit dtype, to which torch first casts the
        # inputs: ``softmax(x, dim, dtype=torch.float16)``, ``linspace(start, end, 50, dtype=torch.float16)``.
        units = [_unit(array) for array in inputs]
        coarsest = max((_unit(each) for each in actual), default=0.0)
        if coarsest > max(units, default=0.0):
            units = [unit and coarsest for unit in units]
        step = max([unit for unit in units if unit] or [_unit(each) for each in actual], default=0.0)
        least = max((smallest_rounding(each) for each in (*inputs, *actual) if _unit(each) == step), default=0.0)
        return cls(evaluate, inputs, units, step, least)

    def exact(self) -> list[Array]:
        """Return the outputs without any rounding, for inputs with their original strides."""
        return self.evaluate(self.inputs, None)

    def moved(self, number: int, share: float, *, takes_apart: bool) -> list[Array]:
        """Return the outputs for inputs and steps that are off by ``share`` of a rounding."""
        arrays = [
            widen(each) if not unit else widen(each) * (1.0 + share * unit * roundings(f"{number}/{index}", each.shape))
            for index, (each, unit) in enumerate(zip(self.inputs, self.units, strict=True))
        ]
        return self.evaluate(arrays, Rounding(self.step, str(number), share, self.least, takes_apart))

    def with_rolled_inputs(self, shift: int) -> list[Array]:
        """Return the outputs for floating inputs whose elements are rotated, each input by another distance."""
        arrays = [
            np.roll(widen(each).reshape(-1), shift * (index + 1)).reshape(each.shape) if unit else widen(each)
            for index, (each, unit) in enumerate(zip(self.inputs, self.units, strict=True))
        ]
        return self.evaluate(arrays, None)

    def draws(self, *, share: float = 1.0, takes_apart: bool) -> list[list[Array]]:
        """Return the outputs for each draw of roundings, scaled by ``share``."""
        return [self.moved(number, sign * share, takes_apart=takes_apart) for number, sign in _DRAWS]


def _unit(array: Array) -> float:
    """Return the unit roundoff of an array's dtype, 0 for exact dtypes."""
    entry = dtype_of(array.dtype)
    return entry.unit_roundoff if entry.is_inexact else 0.0


def smallest_rounding(array: Array) -> float:
    """Return half of the smallest number of an array's dtype; 0 if float64 does not hold it."""
    entry = dtype_of(array.dtype)
    return 2.0 ** (entry.emin - entry.precision) if entry.is_inexact else 0.0
