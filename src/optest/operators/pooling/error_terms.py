"""What the poolings may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Attributes, Inputs, as_float64, quiet, spec_of
from optest.operators.pooling.references import adaptive_sums, divisors, window_sums
from optest.operators.pooling.windows import adaptive_windows_of, windows_of
from optest.operators.products import terms_of_products
from optest.spec import Terms

__all__ = ["adaptive_avg_pool2d_terms", "avg_pool2d_terms"]


@quiet
def avg_pool2d_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the elements of the window, divided; the division's own rounding counts as a further term."""
    x = np.abs(as_float64(inputs[0]))
    windows = windows_of(spec_of(np.asarray(inputs[0])), attributes)
    divisor = np.abs(divisors(windows, attributes))
    absolute, squared = window_sums(x, windows) / divisor, window_sums(x * x, windows) / (divisor * divisor)
    terms = terms_of_products(absolute, squared, windows.elements + 1, np.asarray(inputs[0]))
    return (terms._replace(divided=True),)


@quiet
def adaptive_avg_pool2d_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """As those of avg_pool2d, with as many terms as the largest window has."""
    x = np.abs(as_float64(inputs[0]))
    windows = adaptive_windows_of(spec_of(np.asarray(inputs[0])), attributes)
    absolute, count = adaptive_sums(x, windows)
    squared, _ = adaptive_sums(x * x, windows)
    terms, first = windows.elements + 1, np.asarray(inputs[0])
    return (terms_of_products(absolute / count, squared / (count * count), terms, first)._replace(divided=True),)
