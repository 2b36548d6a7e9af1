"""The model that is asked, its inputs, and what it should answer: in float64, with the error that float32 makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.numerics import Array, dtype_of, numpy_dtype
from optest.onnx.graphs import Graph, opened_file
from optest.spec import ErrorBudget, NamedOutput, Rule, RuleClass, Unrounded, dtype

__all__ = ["FACTOR", "OnnxSubject", "judged_by_accuracy", "onnx_subject"]

FACTOR = 3.0
"""How many times the float32 reference's own error a node may have: right graphs of ONNX Runtime reach 2.6 in one node,
wrong ones begin at 4 (measured on GPT-2 and ResNet)."""
_OPEN = 16
"""An open size of an input that nobody states, but for a batch, which is 1."""
_INPUTS_SEED = 0x6F7074


class OnnxSubject:
    """A model in ONNX with inputs, drawn or given."""

    def __init__(self, graph: Graph, feeds: Mapping[str, Array]) -> None:
        self.graph = graph
        self.feeds = feeds

    @cached_property
    def _narrow(self) -> Mapping[str, Array]:
        """All values, in the model's own dtypes."""
        return self.graph.evaluated([*self.graph.makers], self.feeds)

    @cached_property
    def _expected(self) -> Mapping[str, NamedOutput]:
        """All values as they should be, computed from the model's inputs."""
        wide = {name: _widened(value) for name, value in self.feeds.items()}
        return self._judged([*self.graph.makers], self.feeds, wide)

    def activation(self, name: str) -> Array:
        found = self.feeds.get(name)
        return self._narrow[name] if found is None else found

    def expected(self, outputs: Sequence[str], given: Sequence[str] = ()) -> list[NamedOutput]:
        """What values should be, computed from those in ``given`` as float32 has them, or from the model's inputs."""
        if not given:
            return [self._expected[name] for name in outputs]
        start = {name: self.activation(name) for name in given}
        made = self._judged(outputs, start, {name: _widened(value) for name, value in start.items()})
        return [made[name] for name in outputs]

    def _judged(
        self, outputs: Sequence[str], given: Mapping[str, Array], wide: Mapping[str, Array]
    ) -> dict[str, NamedOutput]:
        region, wanted = self.graph.region(outputs, given), {*outputs}
        moved = {name: _moved(value) for name, value in given.items()}
        graph = self.graph.widened
        streams = zip(
            self.graph.stream(region, given), graph.stream(region, wide), graph.stream(region, moved), strict=True
        )
        return {
            name: judged_by_accuracy(name, narrow, wide, moved)
            for (name, narrow), (_, wide), (_, moved) in streams
            if name in wanted
        }


def judged_by_accuracy(name: str, narrow: Array, wide: Array, moved: Array) -> NamedOutput:
    """An output that may be :data:`FACTOR` times as far from the float64 values ``wide`` as float32 is.

    How far that is says the float32 reference ``narrow``, and what one rounding of the inputs does (``moved``), since
    the error of one way to compute a small tensor may happen to be 0; half a unit of the largest element at least.
    """
    kind = dtype_of(narrow.dtype)
    if not kind.is_inexact:
        return NamedOutput(name, narrow, rule=Rule(kind=RuleClass.EXACT, stands=True))
    finite = np.isfinite(wide)
    largest = float(np.max(np.abs(wide[finite]), initial=0.0))
    error = max(
        *(
            float(np.max(np.abs(each[finite].astype(np.float64) - wide[finite]), initial=0.0))
            for each in (narrow, moved)
        ),
        largest * kind.unit_roundoff,
    )
    formula = f"{FACTOR:g} x the error of {kind} against float64, {error:.3g}"
    unit = dtype("float64" if kind.name == "float64" else "float32").unit_roundoff
    worst = FACTOR * error / unit
    budget = ErrorBudget(worst=np.broadcast_to(worst, wide.shape))
    return NamedOutput(name, Unrounded(wide, kind), rule=Rule(kind=RuleClass.COMPOSED, formula=formula), terms=budget)


def _widened(value: Array) -> Array:
    return value.astype(np.float64) if dtype_of(value.dtype).is_inexact else value


def _moved(value: Array) -> Array:
    """Each element moved by up to one rounding of its dtype."""
    kind = dtype_of(value.dtype)
    if not kind.is_inexact:
        return value
    rng = np.random.default_rng(_INPUTS_SEED)
    return value.astype(np.float64) * (1 + kind.unit_roundoff * rng.uniform(-1, 1, value.shape))


@lru_cache(maxsize=4)
def onnx_subject(file: str, inputs: str, sizes: str, seed: int) -> OnnxSubject:
    """The model of a file, with the inputs of a file of safetensors, or drawn by ``seed``.

    ``sizes`` states those that the model leaves open: ``batch=2,sequence=8``.

    Raises:
        UsageError: for a file that is no model, or has other inputs than it.
    """
    graph = Graph(opened_file(Path(file)))
    specs = list(graph.input_specs())
    stated = dict(each.split("=", 1) for each in sizes.split(",") if each)
    if inputs:
        return OnnxSubject(graph, _read(Path(inputs), specs))
    rng = np.random.default_rng([_INPUTS_SEED, seed])
    feeds = {}
    for name, kind, shape in specs:
        known = tuple(size if isinstance(size, int) else _size(size, stated) for size in shape)
        feeds[name] = _drawn(rng, graph, name, kind, known)
    return OnnxSubject(graph, feeds)


def _size(name: str, stated: Mapping[str, str]) -> int:
    return int(stated.get(name, 1 if "batch" in name.lower() or name == "N" else _OPEN))


def _read(path: Path, specs: Sequence[tuple[str, str, Any]]) -> dict[str, Array]:
    from safetensors.numpy import load_file

    found = load_file(path)
    names = [name for name, _, _ in specs]
    if {*found} != {*names}:
        raise UsageError(f"{path} has {', '.join(sorted(found))}, but the model's inputs are {', '.join(names)}")
    return {name: found[name] for name in names}


def _drawn(rng: np.random.Generator, graph: Graph, name: str, kind: str, shape: tuple[int, ...]) -> Array:
    entry = dtype(kind)
    if entry.is_inexact:
        return rng.standard_normal(shape).astype(numpy_dtype(entry))
    if entry.name == "bool" or "mask" in name:
        return np.ones(shape, numpy_dtype(entry))
    return rng.integers(0, _rows(graph, name), shape).astype(numpy_dtype(entry))


def _rows(graph: Graph, name: str) -> int:
    """How many rows the table has that indices choose from, 2 where the graph does not tell."""
    counts = [2]
    for node, place in graph.readers(name):
        if node.op_type == "Gather" and place == 1:
            table = graph.constant(node.input[0])
            counts += [] if table is None else [table.shape[0]]
        elif node.op_type in ("Cast", "Unsqueeze", "Reshape", "Flatten", "Squeeze"):
            counts.append(_rows(graph, node.output[0]))
    return max(counts)
