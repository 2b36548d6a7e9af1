"""What additions by index may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Attributes, Inputs, magnitudes, quiet
from optest.operators.indexing.references import scattered
from optest.spec import Terms

__all__ = ["scatter_add_terms"]


@quiet
def scatter_add_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms of an element are its own value and every src that names it; their number differs by element.

    An element that no index names is not added to, so it has nothing to lose: its terms are 0.
    """
    array, index, src = (np.asarray(each) for each in inputs)
    own = magnitudes(np.atleast_1d(array))
    absolute, squared = np.zeros(own.shape), np.zeros(own.shape)
    count = np.zeros(own.shape, np.int64)
    if index.size:
        places, terms = scattered(array, index, src, attributes["dim"])
        magnitude = magnitudes(terms)
        np.add.at(absolute, places, magnitude)
        np.add.at(squared, places, magnitude * magnitude)
        np.add.at(count, places, 1)
    named = count > 0
    absolute += np.where(named, own, 0.0)
    squared += np.where(named, own * own, 0.0)
    shape = array.shape
    return (Terms(absolute.reshape(shape), squared.reshape(shape), (count + 1).reshape(shape)),)
