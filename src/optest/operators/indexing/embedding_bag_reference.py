"""What embedding_bag computes, and what it may lose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, is_double, quiet_hooks
from optest.operators.budgets import repeats_of, terms_of_products
from optest.operators.indexing.embedding_bag import infer_embedding_bag
from optest.operators.indexing.gather_reference import require_range
from optest.spec import Rule, RuleClass, Terms, UnfitArguments


class _Bags(NamedTuple):
    rows: Array
    """Of each index that counts, the row that it names, times its factor."""
    bag: Array
    """The bag of each of them."""
    counts: Array
    """How many of them each bag has, as a column."""
    size: int
    first: Array
    """weight."""


def _bags_of(inputs: Inputs, attributes: Attributes) -> _Bags:
    arrays, (out,) = inferred(infer_embedding_bag, inputs, attributes)
    weight, indices, offsets, factors = (*arrays, None, None)[:4]
    require_range(indices, len(weight), "indices")
    bags, count = out.shape[0], indices.size
    if offsets is None:
        bag = np.repeat(np.arange(bags), indices.shape[1])
    else:
        ends = [*offsets[1:], *([] if attributes.get("include_last_offset") else [count])]
        lengths = np.asarray(ends[:bags], np.int64) - offsets[:bags]
        if bags and (offsets[0] != 0 or (lengths < 0).any() or ends[-1] > count):
            raise UnfitArguments(f"offsets is {list(offsets)}, but should rise from 0 to {count} at most")
        bag = np.repeat(np.arange(bags), lengths)
    places = indices.reshape(-1)[: len(bag)]
    padding = attributes.get("padding_idx")
    counts_in = np.ones(len(bag), bool) if padding is None else places != padding % len(weight)
    rows = as_float64(weight)[places[counts_in]]
    if factors is not None:
        rows = rows * as_float64(factors).reshape(-1)[: len(bag)][counts_in, None]
    bag = bag[counts_in]
    return _Bags(rows, bag, np.bincount(bag, minlength=bags)[:, None], bags, weight)


def embedding_bag_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    bags = _bags_of(inputs, attributes)
    shape = (bags.size, bags.rows.shape[1])
    if attributes["mode"] == "max":
        out = np.full(shape, -np.inf)
        np.maximum.at(out, bags.bag, bags.rows)
        return (np.where(bags.counts > 0, out, 0.0),)
    wide = np.longdouble if is_double(bags.first) else np.float64
    total = np.zeros(shape, wide)
    np.add.at(total, bags.bag, bags.rows.astype(wide))
    divisor = np.maximum(bags.counts, 1) if attributes["mode"] == "mean" else 1
    return ((total / divisor).astype(np.float64),)


def embedding_bag_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms | Rule, ...]:
    """The terms are the rows of a bag, for the mean divided by their number; a factor's product, or the quotient (2.5
    ulp), counts as a further term. max is judged as exact."""
    if attributes["mode"] == "max":
        return (Rule(kind=RuleClass.EXACT, source="one of the rows"),)
    bags = _bags_of(inputs, attributes)
    absolute, squared = np.zeros((2, bags.size, bags.rows.shape[1]))
    np.add.at(absolute, bags.bag, np.abs(bags.rows))
    np.add.at(squared, bags.bag, bags.rows * bags.rows)
    is_mean = attributes["mode"] == "mean"
    divisor = np.maximum(bags.counts, 1) if is_mean else 1
    longest = int(bags.counts.max(initial=1))
    found = terms_of_products(absolute / divisor, squared / divisor**2, longest, bags.first)
    sums = np.arange(absolute.size).reshape(absolute.shape)[bags.bag]
    repeats = repeats_of(sums, bags.rows, absolute.shape)
    counts = bags.counts + 2 * np.ones(absolute.shape)
    return (Terms(found.absolute, found.squared, counts, divided=is_mean, repeats=repeats),)


quiet_hooks(globals())
