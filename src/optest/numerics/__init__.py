"""Element formats and their bits, rounding, units in the last place (ulp), strided views of memory."""

from optest.numerics.float_state import ErrorStateKept, Quiet, reset_float_mode
from optest.numerics.formats import Array, bits, byte_beyond_bool, dtype_of, is_known, numpy_dtype, same_bits, widen
from optest.numerics.layout import (
    are_same_memory,
    copy_between,
    empty_storage,
    have_same_gaps,
    is_packed,
    private_copy,
    view,
)
from optest.numerics.rounding import round_to, summation_errors, ulp

__all__ = [
    "Array",
    "ErrorStateKept",
    "Quiet",
    "are_same_memory",
    "bits",
    "byte_beyond_bool",
    "copy_between",
    "dtype_of",
    "empty_storage",
    "have_same_gaps",
    "is_known",
    "is_packed",
    "numpy_dtype",
    "private_copy",
    "reset_float_mode",
    "round_to",
    "same_bits",
    "summation_errors",
    "ulp",
    "view",
    "widen",
]
