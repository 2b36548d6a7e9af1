"""Reference and error terms of embedding_bag."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, infer_from_arrays, is_double, quiet_hooks
from optest.operators.budgets import repeats_of, terms_of_products
from optest.operators.indexing.embedding_bag import infer_embedding_bag
from optest.operators.indexing.gather_reference import require_range
from optest.spec import Rule, RuleClass, Terms, UnfitArguments


class _Bags(NamedTuple):
    """Selected rows of an embedding_bag call, with padding removed and factors applied."""

    rows: Array  # selected rows x columns, in float64
    bag: Array  # index of the bag of each selected row
    counts: Array  # number of rows of each bag, bags x 1
    size: int  # number of bags
    first: Array  # weight as stored


def _select_rows(inputs: Inputs, attributes: Attributes) -> _Bags:
    """Select the rows of all bags; raise UnfitArguments for an index out of range or offsets that do not rise."""
    arrays, (out,) = infer_from_arrays(infer_embedding_bag, inputs, attributes)
    weight, indices, offsets, factors = (*arrays, None, None)[:4]
    require_range(indices, len(weight), "indices")
    bags, count = out.shape[0], indices.size
    if offsets is None:
        bag = np.repeat(np.arange(bags), indices.shape[1])
    else:
        ends = [*offsets[1:], *([] if attributes.get("include_last_offset") else [count])]
        lengths = np.asarray(ends[:bags], np.int64) - offsets[:bags]
        if bags and (offsets[0] != 0 or (lengths < 0).any() or ends[-1] > count):
            raise UnfitArguments(f"offsets is {list(offsets)}, expected to rise from 0 to at most {count}")
        bag = np.repeat(np.arange(bags), lengths)
    flat_indices = indices.reshape(-1)[: len(bag)]
    padding = attributes.get("padding_idx")
    is_counted = np.ones(len(bag), bool) if padding is None else flat_indices != padding % len(weight)
    rows = as_float64(weight)[flat_indices[is_counted]]
    if factors is not None:
        rows = rows * as_float64(factors).reshape(-1)[: len(bag)][is_counted, None]
    bag = bag[is_counted]
    return _Bags(rows, bag, np.bincount(bag, minlength=bags)[:, None], bags, weight)


def embedding_bag_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    bags = _select_rows(inputs, attributes)
    shape = (bags.size, bags.rows.shape[1])
    if attributes["mode"] == "max":
        out = np.full(shape, -np.inf)
        np.maximum.at(out, bags.bag, bags.rows)
        return (np.where(bags.counts > 0, out, 0.0),)
    # A float64 output needs a sum that is more exact than float64.
    wide = np.longdouble if is_double(bags.first) else np.float64
    total = np.zeros(shape, wide)
    np.add.at(total, bags.bag, bags.rows.astype(wide))
    divisor = np.maximum(bags.counts, 1) if attributes["mode"] == "mean" else 1
    return ((total / divisor).astype(np.float64),)


def embedding_bag_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms | Rule, ...]:
    """Return the sums of |row| and row² of each bag and its number of terms; for mode max, the exact rule.

    For the mean, rows are divided by their number. The product with a factor and the quotient (2.5 ulp) count as two
    further terms.
    """
    if attributes["mode"] == "max":
        return (Rule(kind=RuleClass.EXACT, source="one of the rows"),)
    bags = _select_rows(inputs, attributes)
    absolute, squared = np.zeros((2, bags.size, bags.rows.shape[1]))
    np.add.at(absolute, bags.bag, np.abs(bags.rows))
    np.add.at(squared, bags.bag, bags.rows * bags.rows)
    is_mean = attributes["mode"] == "mean"
    divisor = np.maximum(bags.counts, 1) if is_mean else 1
    longest = int(bags.counts.max(initial=1))
    terms = terms_of_products(absolute / divisor, squared / divisor**2, longest, bags.first)
    sums = np.arange(absolute.size).reshape(absolute.shape)[bags.bag]
    repeats = repeats_of(sums, bags.rows, absolute.shape)
    counts = bags.counts + 2 * np.ones(absolute.shape)
    return (Terms(terms.absolute, terms.squared, counts, divided=is_mean, repeats=repeats),)


quiet_hooks(globals())
