"""Samples of an operator that states none: shapes that it takes are sought, and asked in the usual case sets.

Which dimensions of its inputs are alike is not declared. So forms are tried, in sizes that differ, and the first that
are taken in two sets of sizes stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from optest.operators.calls import EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, SIZES, TILES
from optest.operators.samples import standard, with_special_rows
from optest.spec import OperatorDescriptor, RuleClass, Sample, TensorSpec, dtype, format_shape

__all__ = ["SignatureSamples", "Takes", "signature_samples"]

Takes = Callable[[Sequence[TensorSpec | None], Mapping[str, Any]], bool]
"""Whether an operator takes inputs of these specs, with these attributes."""

_FORMS = ("R C", "C K", "K C", "C", "R", "C R", "B R C", "B C K", "B C", "B R C K", "R 1", "1", "")
_PARAMETERS = ("weight", "bias", "gamma", "beta", "scale")
"""Names of inputs that are one row for all others, though broadcasting lets them be whole tensors."""
_SIZES = ({"R": 4, "C": 37, "B": 3, "K": 5, "1": 1}, {"R": 3, "C": 8, "B": 2, "K": 6, "1": 1})
_MOST_TRIED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureSamples:
    """``samples`` are none where no shapes were taken; ``how`` says what was derived, or why nothing was."""

    samples: Sequence[Sample] = ()
    how: str


def signature_samples(descriptor: OperatorDescriptor, takes: Takes) -> SignatureSamples:
    """Case sets of ordinary calls, dtypes, layouts, sizes around tiles, and special values."""
    required = [each for each in descriptor.attributes if each.is_required]
    unknown = [each.name for each in required if not each.choices]
    if unknown or not descriptor.tensors.inputs:
        return SignatureSamples(how=f"nobody knows a value of {', '.join(unknown)}" if unknown else "it has no inputs")
    attributes = {each.name: each.choices[0] for each in required}
    variants = descriptor.dtype_variants or tuple([(name,) for name in EVERY_FLOAT])
    names = [each.name for each in descriptor.tensors.inputs if not each.optional and not each.variadic]
    if all(len(each) not in (1, len(names)) for each in variants):
        names = [each.name for each in descriptor.tensors.inputs]

    kinds = variants[0] * len(names) if len(variants[0]) == 1 else variants[0]

    def is_taken(shapes: Mapping[str, Sequence[int]]) -> bool:
        specs = {
            name: TensorSpec(dtype=dtype(kind), shape=tuple(shapes[name]))
            for name, kind in zip(names, kinds, strict=False)
        }
        return takes([specs.get(each.name) for each in descriptor.tensors.inputs], descriptor.bind(attributes))

    ordered = [sorted(_FORMS, key=lambda form: form != "C") if name in _PARAMETERS else _FORMS for name in names]
    for forms in islice(product(*ordered), _MOST_TRIED):
        if all(is_taken(_shapes(names, forms, sizes)) for sizes in _SIZES):
            break
    else:
        return SignatureSamples(how="no simple shapes of its inputs are taken")

    indices = [name for name, kind in zip(names, kinds, strict=False) if not dtype(kind).is_inexact]
    indices = indices if len(indices) < len(names) else []

    def stated(sizes: Mapping[str, int]) -> dict[str, Any]:
        shapes = _shapes(names, forms, sizes)
        least = min((size for shape in shapes.values() for size in shape if size), default=1)
        fills = {name: {"fill": "randint", "low": 0, "high": least} for name in indices}
        more = {"attributes": attributes, "generator": fills}
        return {"shapes": shapes, **{key: value for key, value in more.items() if value}}

    def sized(size: int) -> dict[str, Any]:
        return stated({**_SIZES[0], "R": 3, "C": size})

    least = 0 if descriptor.infer is not None else 1  # without inference nobody declares an output to be empty
    has_law = descriptor.rule is not None and descriptor.rule.kind is not RuleClass.CLOSE
    sizes = [
        size for size in (*SIZES, LARGE_SIZE if has_law else TILES) if size >= least and is_taken(sized(size)["shapes"])
    ]
    calls = list(map(stated, _SIZES))
    samples = list(standard(calls, variants, sized=sized, sizes=sizes, special=False))
    if not has_law:  # one tolerance is not for every magnitude
        samples = [
            each
            for each in samples
            if each.case_set != "ordinary" or each.case.get("generator") == calls[0].get("generator")
        ]
    floats = [each[0] for each in variants if len(each) == 1 and each[0] in MAIN_FLOATS]
    if floats and not indices and forms[0]:
        samples += with_special_rows(calls[:1], names[:1], dtypes=floats)
    first = stated(_SIZES[0])["shapes"]
    shapes = ", ".join(f"{name} {format_shape(tuple(shape))}" for name, shape in first.items())
    sets = ", ".join(dict.fromkeys(each.case_set for each in samples))
    return SignatureSamples(samples=samples, how=f"{sets}; of shapes as {shapes}")


def _shapes(names: Sequence[str], forms: Sequence[str], sizes: Mapping[str, int]) -> dict[str, list[int]]:
    return {name: [sizes[axis] for axis in form.split()] for name, form in zip(names, forms, strict=True)}
