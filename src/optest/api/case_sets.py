"""Which samples of an operator are cases of a check: those that its signature gives where it states none, and, where no
values are computed, every refusal and each call that makes a difference to shape inference."""

from __future__ import annotations

import json
import math
import re
import sys
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import CapturesPrograms, InfersShapes
from optest.core.border import Border
from optest.core.reference_functions import CHANGES_NOTHING
from optest.numerics import Array, dtype_of, numpy_dtype
from optest.operators.signature_samples import SignatureSamples, Trial, signature_samples
from optest.registry import load_object
from optest.spec import TIERS, Fault, OperatorDescriptor, Reason, Sample, TensorSpec, Tier, UnfitArguments
from optest.spec.case import GRAPH
from optest.spec.references import Unrounded, undeclared_output_dtype
from optest.spec.tensors import format_shape

_LONG = 256
"""Size above which a reference may loop over a dimension for long."""
_FOREIGN = "|".join(
    map(re.escape, ("site-packages", str(Path(re.__file__).parents[1]), str(Path(__file__).parents[1])))
)
"""Folders of modules whose lines are not a reference's own."""
_MOST_REFUSED = 8_000
"""Calls that a reference may refuse before no other is tried, which takes a minute for a function of torch."""
_GRAPHS = 6
"""Calls that differ in attributes, and as many that differ in dtypes: graphs hang on these more than on sizes."""


def selection(driver: BackendDriver) -> Callable[[Sample], bool]:
    """Whether a sample is asked, in the order of an operator's samples; of a driver without shape inference refusals
    alone are asked."""
    seen: set[str] = set()

    def is_asked(sample: Sample) -> bool:
        if "expects_error" in sample.case or sample.case_set == GRAPH:
            return True
        shapes = {name: _sizes(shape) for name, shape in sample.case.get("shapes", {}).items()}
        call = [shapes, sample.case.get("dtypes"), sample.case.get("attributes")]
        signature = json.dumps(call, sort_keys=True, default=str)
        is_new = signature not in seen
        seen.add(signature)
        return is_new and isinstance(driver, InfersShapes)

    return is_asked


def graph_samples(driver: BackendDriver, own: Iterable[Sample]) -> list[Sample]:
    """The first calls of an operator of other attributes, and of other dtypes, if the driver captures programs."""
    right = [each for each in own if "expects_error" not in each.case and isinstance(driver, CapturesPrograms)]
    chosen: dict[int, Sample] = {}
    for key in ("attributes", "dtypes"):
        calls: dict[str, Sample] = {}
        for each in right:
            calls.setdefault(repr(each.case.get(key)), each)
        chosen |= {id(each): each for each in islice(calls.values(), _GRAPHS)}
    return [Sample(case_set=GRAPH, case=each.case, tier=each.tier) for each in chosen.values()]


def smoke_samples(samples: Sequence[Sample], dtypes: Iterable[str]) -> list[Sample]:
    """Return a smoke sample for each of the dtypes that no smoke sample of an operator has.

    It has the shapes and attributes of another smoke sample, if there is such a sample, and no other dtype if possible.
    """
    smoke = [(each.case.get("shapes"), each.case.get("attributes")) for each in samples if each.tier is Tier.SMOKE]

    def rank(sample: Sample) -> tuple[bool, int, int]:
        is_other = (sample.case.get("shapes"), sample.case.get("attributes")) not in smoke
        return is_other, len(_dtypes(sample)), TIERS.index(sample.tier)

    added = []
    for name in dtypes:
        in_dtype = [each for each in samples if name in _dtypes(each) and "expects_error" not in each.case]
        if in_dtype and Tier.SMOKE not in (each.tier for each in in_dtype):
            added.append(min(in_dtype, key=rank))
    return added


def _dtypes(sample: Sample) -> set[str]:
    dtypes = sample.case.get("dtypes") or ()
    return {dtypes} if isinstance(dtypes, str) else set(dtypes.values() if isinstance(dtypes, Mapping) else dtypes)


def _sizes(shape: Any) -> Any:
    """Sizes as broadcasting tells them apart: 0, 1, and more; layouts make no difference."""
    stated = shape.get("shape") if isinstance(shape, Mapping) else shape
    return [min(size, 2) if isinstance(size, int) else size for size in stated] if isinstance(stated, list) else stated


def by_signature(descriptor: OperatorDescriptor, sizes: Mapping[str, int] | None = None) -> SignatureSamples:
    """Return the samples that the signature of an operator implies; none if the operator has samples.

    ``sizes`` of its dimensions are tried first.
    """
    if descriptor.samples is not None:
        return SignatureSamples(how="")

    tried: list[Trial] = []
    refusals: Counter[str] = Counter()

    def attempt(*call: Any) -> Trial | str:
        if refusals.total() >= _MOST_REFUSED:
            return f"{_MOST_REFUSED:,} calls were refused"
        try:
            with Border("the operator", Reason.BAD_CASE, let_through=lambda: True):
                tried.append(_attempt(descriptor, *call, is_traced=bool(tried)))
                return tried[-1]
        except Fault as fault:
            text = fault.message.partition("\n")[0]
            refusals[text] += 1
            return text

    derived = signature_samples(descriptor, attempt, sizes)
    if not derived.samples and (idle := next((text for text in refusals if CHANGES_NOTHING in text), "")):
        return replace(derived, how=idle)
    return derived


def _attempt(
    descriptor: OperatorDescriptor,
    specs: Sequence[TensorSpec | None],
    attributes: Mapping[str, Any],
    values: Mapping[str, Sequence[int]],
    is_probe: bool = False,
    *,
    is_traced: bool,
) -> Trial:
    """Call the inference of an operator, and its reference with ones for floats and zeros for integers. A probe of a
    user's function has random floats and true masks, and keeps what it returns.

    Pass on their exceptions. The first call is not traced: it may import a framework, ten times as slowly if traced.
    """
    inferred = load_object(descriptor.infer)(specs, attributes) if descriptor.infer is not None else None
    if descriptor.reference is None:
        return Trial(inferred or (), 8 * sum(each.elements for each in inferred or ()))
    names = [each.name for each in descriptor.tensors.inputs]

    def filled(name: str, spec: TensorSpec) -> Array:
        numbers: Any = values.get(name, np.full(spec.elements, spec.dtype.is_inexact))
        if is_probe and name not in values:
            numbers = 4 * np.random.default_rng(names.index(name)).standard_normal(spec.elements)
            numbers = numbers[np.abs(numbers).argsort()]  # the last are the maximum and the minimum
        return np.asarray(numbers).astype(numpy_dtype(spec.dtype)).reshape(spec.shape)

    inputs = [None if each is None else filled(name, each) for name, each in zip(names, specs, strict=True)]
    reference = load_object(descriptor.reference)
    reference = replace(reference, is_traced=False) if is_probe else reference
    if is_traced:
        tracemalloc.start()
    lines = 0

    def count(frame: Any, *_: Any) -> Any:
        nonlocal lines
        if re.search(_FOREIGN, frame.f_code.co_filename):
            return None
        lines += 1
        return count

    tracing = sys.gettrace()
    if max((size for each in specs if each is not None for size in each.shape), default=0) > _LONG:
        sys.settrace(count)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = reference(inputs, attributes)
        memory: float = tracemalloc.get_traced_memory()[1]  # 0 if nothing is traced
    finally:
        sys.settrace(tracing)
        tracemalloc.stop()
    results = returned if isinstance(returned, (tuple, list)) and not hasattr(returned, "_fields") else (returned,)
    arrays = [np.asarray(each.values if isinstance(each, Unrounded) else each) for each in results]
    given = [each.dtype for each in specs if each is not None]
    outputs = [
        TensorSpec(dtype=undeclared_output_dtype(dtype_of(each.dtype), given), shape=each.shape) for each in arrays
    ]
    if inferred is not None and [each.shape for each in inferred] != [each.shape for each in outputs]:
        shapes = " and ".join(format_shape(each.shape) for each in outputs)
        raise UnfitArguments(f"the reference makes {shapes}, but its signature or `infer` specifies another shape")
    owners = [_owner(each) for each in arrays]
    least = sum(each.nbytes for each, owner in zip(arrays, owners, strict=True) if all(owner is not x for x in inputs))
    # memory that a framework allocates is not traced
    is_known = memory >= least and all(isinstance(each, np.ndarray) for each in owners)
    return Trial(inferred or outputs, memory if is_known else math.inf, lines, arrays if is_probe else ())


def _owner(array: Any) -> Any:
    """Return the object that owns the memory of an array."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array
