"""Which inputs of a call hold its batch: their first dimension is that of the outputs, element for element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from optest.registry import load_object
from optest.spec import OperatorDescriptor, TensorSpec, UnfitArguments

__all__ = ["batch_inputs", "batch_size", "resized"]


def batch_size(outputs: Sequence[tuple[int, ...]]) -> int:
    """The first dimension that outputs of these shapes share; 0 where they share none."""
    sizes = {shape[0] if shape else 0 for shape in outputs}
    return sizes.pop() if len(sizes) == 1 else 0


def resized(spec: TensorSpec, size: int) -> TensorSpec:
    """The dense tensor with another first dimension."""
    return TensorSpec(dtype=spec.dtype, shape=(size, *spec.shape[1:]))


def batch_inputs(
    descriptor: OperatorDescriptor, specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any], size: int
) -> list[tuple[int, ...]]:
    """The sets of inputs that may hold a batch of ``size``, by their places; one where inference tells: the fewest
    with which all outputs become longer and shorter, and nothing else, not even the range of indices.

    So weights are left alone that happen to have as many rows: of ``[n, n] @ [n, n]`` it is the first matrix. Without
    inference each input with that first dimension stands for itself.
    """
    places = [place for place, spec in enumerate(specs) if spec is not None and spec.shape[:1] == (size,)]
    if descriptor.infer is None:
        return [(place,) for place in places]
    infer = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
    domain = load_object(descriptor.domain) if isinstance(descriptor.domain, str) else descriptor.domain

    def call(chosen: Sequence[int], rows: int) -> tuple[list[tuple[int, ...]], Any]:
        given = [resized(spec, rows) if spec is not None and at in chosen else spec for at, spec in enumerate(specs)]
        try:
            outputs = [spec.shape for spec in infer(given, attributes)]
            return outputs, domain(given, attributes) if callable(domain) else None
        except UnfitArguments:
            return [], None

    outputs, ranges = call((), size)
    for count in range(1, len(places) + 1 if outputs else 0):
        for chosen in combinations(places, count):
            if all(call(chosen, n) == ([(n, *shape[1:]) for shape in outputs], ranges) for n in (1, 2 * size + 1)):
                return [chosen]
    return []
