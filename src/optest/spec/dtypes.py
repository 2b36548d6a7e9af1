"""Table of all element types with their formats; no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from optest.errors import UnknownName


class Kind(str, Enum):
    """Family of an element type."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    COMPLEX = "complex"


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """One element type.

    For floats ``precision`` counts significand bits with the hidden one (float32: 24), so the unit
    roundoff is ``2**-precision``; ``emin`` and ``emax`` are the exponents of the smallest normal and
    the largest finite binade. A complex type describes its components.
    """

    name: str
    kind: Kind
    bits: int
    precision: int = 0
    emin: int = 0
    emax: int = 0
    max_finite: float = 0.0
    has_infinity: bool = True
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"dtype({self.name!r})"

    def __hash__(self) -> int:
        """Hash only the name."""
        # Names are unique, and specs are looked up by the thousand.
        return hash(self.name)

    def __reduce__(self) -> tuple[object, ...]:
        return (dtype, (self.name,))

    @property
    def itemsize_bytes(self) -> int:
        """Bytes of one element in memory; 1 for 4-bit types."""
        # ml_dtypes stores 4-bit types in a byte each.
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind is Kind.COMPLEX

    @property
    def is_inexact(self) -> bool:
        return self.kind in (Kind.FLOAT, Kind.COMPLEX)

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.INT, Kind.UINT)

    @property
    def unit_roundoff(self) -> float:
        """Half the distance between 1 and the next larger value; 0 for exact types."""
        return 2.0**-self.precision if self.precision else 0.0

    @property
    def min_int(self) -> int:
        return -(1 << (self.bits - 1)) if self.kind is Kind.INT else 0

    @property
    def max_int(self) -> int:
        """Largest value of an integer type; meaningless for floats."""
        return (1 << (self.bits - (self.kind is Kind.INT))) - 1


def _float(name: str, bits: int, precision: int, emin: int, emax: int, *aliases: str, **fields: Any) -> DType:
    """Return a float type; ``fields`` replace those of an IEEE 754 format."""
    largest = (2.0 - 2.0 ** (1 - precision)) * 2.0**emax
    fields = {"precision": precision, "emin": emin, "emax": emax, "max_finite": largest, **fields}
    return DType(name=name, kind=Kind.FLOAT, bits=bits, aliases=aliases, **fields)


def _complex(name: str, part: DType, *aliases: str) -> DType:
    return replace(part, name=name, kind=Kind.COMPLEX, bits=2 * part.bits, aliases=aliases)


def _integer_dtype(name: str, bits: int, *aliases: str) -> DType:
    return DType(name=name, kind=Kind.UINT if name.startswith("u") else Kind.INT, bits=bits, aliases=aliases)


_FLOAT32 = _float("float32", 32, 24, -126, 127, "fp32", "f32", "single", "float")
_FLOAT64 = _float("float64", 64, 53, -1022, 1023, "fp64", "f64", "double")

DTYPES: tuple[DType, ...] = (
    DType(name="bool", kind=Kind.BOOL, bits=8, aliases=("boolean", "bool_", "b8", "pred")),
    _integer_dtype("int4", 4, "i4", "s4"),
    _integer_dtype("uint4", 4, "u4"),
    _integer_dtype("int8", 8, "i8", "s8", "char"),
    _integer_dtype("uint8", 8, "u8", "byte"),
    _integer_dtype("int16", 16, "i16", "s16", "short"),
    _integer_dtype("uint16", 16, "u16"),
    _integer_dtype("int32", 32, "i32", "s32", "int"),
    _integer_dtype("uint32", 32, "u32"),
    _integer_dtype("int64", 64, "i64", "s64", "long"),
    _integer_dtype("uint64", 64, "u64"),
    # OCP 8-bit formats: e4m3fn has no infinity and its largest value is 448; e5m2 follows IEEE 754.
    _float(
        *("float8_e4m3fn", 8, 4, -6, 8),
        *("fp8_e4m3", "f8e4m3fn", "f8e4m3", "float8_e4m3", "fp8"),
        has_infinity=False,
        max_finite=448.0,
    ),
    _float("float8_e5m2", 8, 3, -14, 15, "fp8_e5m2", "f8e5m2", "bf8"),
    _float("bfloat16", 16, 8, -126, 127, "bf16"),
    _float("float16", 16, 11, -14, 15, "fp16", "f16", "half"),
    _FLOAT32,
    _FLOAT64,
    _complex("complex64", _FLOAT32, "c64", "cfloat"),
    _complex("complex128", _FLOAT64, "c128", "cdouble"),
)

_BY_NAME = {name: entry for entry in DTYPES for name in (entry.name, *entry.aliases)}


def dtype(name: str | DType) -> DType:
    """Return the element type of a name or alias, in any case and with any prefix such as ``torch.`` or ``np.``.

    Return a :class:`DType` unchanged.

    Raises:
        UnknownName: if there is no such type; it suggests the nearest name.
    """
    if isinstance(name, DType):
        return name
    entry = _BY_NAME.get(name)
    if entry is None:
        entry = _BY_NAME.get(name.strip().lower().rpartition(".")[2])
    if entry is None:
        raise UnknownName("dtype", name, dtype_names())
    return entry


def dtype_names() -> tuple[str, ...]:
    return tuple(entry.name for entry in DTYPES)
