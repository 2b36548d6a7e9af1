"""Models under test with their inputs, and the expected values in float64 with the error that float32 makes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from optest.backends.whole_models import ModelGraph, Region
from optest.errors import UsageError
from optest.generators.files import UNREADABLE, tensors_in_file
from optest.numerics import Array, dtype_of, numpy_dtype
from optest.onnx.graphs import Graph, opened_file, tensor_of_file
from optest.spec import ErrorBudget, Fault, NamedOutput, Reason, Rule, RuleClass, Unrounded, dtype
from optest.store import require_regular

# Correct graphs of ONNX Runtime reach 2.6 in one node, wrong ones begin at 4 (measured on GPT-2 and ResNet).
FACTOR = 3.0
"""Allowed error of a value, as a multiple of the error of the float32 reference."""
# Default of an open size, except a batch size, which is 1.
_OPEN = 16
# Errors of elements that are larger by more powers of two (a mask among scores) do not widen the bound of an element.
_FAR_LARGER = 12
_MOST_STEPS = 8
_SEED = 0x6F7074


class Continuation(NamedTuple):
    """Greedy generation in float64: the inputs of each step, the position of its logits, the expected logits."""

    feeds: Sequence[Mapping[str, Array]]
    positions: Sequence[int]
    expected: NamedOutput


class Subject:
    """A graph of values with inputs; ``model`` is the torch model of the graph, None for an ONNX file."""

    def __init__(self, graph: ModelGraph, feeds: Mapping[str, Array], model: Any = None) -> None:
        if graph.random:
            raise UsageError(f"the model draws random numbers ({graph.random}): its runs cannot be compared")
        self.model = model
        self.graph = graph
        self.feeds = feeds
        self._ahead: Iterator[tuple[str, tuple[Array, Array, Array]]] = iter(())
        self._waiting = dict[str, tuple[Array, Array, Array]]()
        self._has_stopped = False
        self._passed = {*graph.node_of_value, *graph.outputs}

    @cached_property
    def _narrow(self) -> Mapping[str, Array]:
        """Values in the model's dtypes, up to the first node without a reference."""
        values = dict[str, Array]()
        with suppress(Fault):
            values.update(self.graph.stream(self._all, self.feeds))
        return values

    @cached_property
    def _all(self) -> Region:
        return self.graph.region([*dict.fromkeys((*self.graph.node_of_value, *self.graph.outputs))], self.feeds)

    def activation(self, name: str) -> Array:
        """Return an input or value in the model's dtypes; raise a Fault if it needs a node without a reference."""
        known = self.feeds if name in self.feeds else self._narrow
        if name in known:
            return known[name]
        values: dict[str, Array] = dict(self.graph.stream(self.graph.region([name], self.feeds), self.feeds))
        return values[name]

    def require_reference(self, values: Sequence[str]) -> None:
        """Raise the Fault of the last of ``values`` if all of them lack a reference."""
        for name in values:
            with suppress(Fault) if name != values[-1] else nullcontext():
                deque(self.graph.stream(self.graph.region([name], self.feeds), self.feeds), maxlen=0)
                return

    def expected(
        self, outputs: Sequence[str], given: Sequence[str] = (), among: Collection[str] = ()
    ) -> list[NamedOutput]:
        """Return expected ``outputs``, computed from the float32 values ``given``, or from the model's inputs.

        ``among`` are the values that later calls will request: they are kept, so that a trace computes each once.

        Raises:
            Fault: as :func:`judged_by_accuracy`; UNSUPPORTED if no output has an element or a node has no reference.
        """
        region = self.graph.region(outputs, given)
        if given or not region.inputs or self._has_stopped:
            # region.inputs may exceed ``given``: an optimizer may read equal values that do not depend on these.
            values = dict(self._computed(region, {name: self.activation(name) for name in region.inputs}))
        else:
            # Stays set if a node without a reference raises; values that do not depend on it are computed one by one.
            self._has_stopped = True
            values = self._in_order(outputs, {*outputs, *among})
            self._has_stopped = False
        require_elements({name: values[name][1] for name in outputs})
        return [accuracy_output(name, *values[name]) for name in outputs]

    def _in_order(self, outputs: Sequence[str], among: Collection[str]) -> dict[str, tuple[Array, Array, Array]]:
        """Return ``outputs`` computed from the model's inputs; keep values in ``among`` until they are requested."""
        # A value that was returned or skipped before restarts the computation from the inputs.
        if not self._passed.isdisjoint({*outputs} - self._waiting.keys()):
            self._ahead, self._waiting = self._computed(self._all, self.feeds), {}
            self._passed.clear()
        while not self._waiting.keys() >= {*outputs}:
            name, computed = next(self._ahead)
            self._passed.add(name)
            if name in among:
                self._waiting[name] = computed
        return {name: self._waiting.pop(name) for name in {*outputs}}

    def _computed(self, region: Region, given: Mapping[str, Array]) -> Iterator[tuple[str, tuple[Array, Array, Array]]]:
        """Yield each value in the model's dtypes, in float64, and in float64 with errors like those of float32."""
        narrow = self.graph.stream(region, given) if given is self.feeds else None  # else activation() has it
        wanted = {*region.outputs}
        for name in wanted.difference(self.graph.node_of_value):  # an output may be an input, or a constant
            value = given[name] if name in given else cast("Array", cast("Graph", self.graph).constant(name))
            yield name, (value, _widened(value), _widened(value))
        streams = zip(
            self.graph.widened.stream(region, {name: _widened(value) for name, value in given.items()}),
            self.graph.perturbed.stream(region, {name: moved(value) for name, value in given.items()}),
            strict=True,
        )
        for (name, wide), (_, perturbed) in streams:
            value = self.activation(name) if narrow is None else next(narrow)[1]
            if name in wanted:
                yield name, (value, wide, perturbed)

    @cached_property
    def continuation(self) -> Continuation:
        """Greedy tokens after the first half of the input, at most eight; only for causal models."""
        tokens = next(name for name, value in self.feeds.items() if value.dtype.kind == "i")
        ids, logits = self.feeds[tokens].copy(), self.graph.outputs[0]
        begin = max(ids.shape[-1] // 2, 1)
        ids[..., begin:] = 0
        feeds, steps = [], []
        for position in range(begin - 1, min(ids.shape[-1], begin - 1 + _MOST_STEPS)):
            given = {**self.feeds, tokens: ids.copy()}
            graphs = (self.graph, self.graph.widened, self.graph.perturbed)
            outputs = (dict(graph.stream(graph.region([logits], given), given))[logits] for graph in graphs)
            feeds.append(given)
            steps.append([output[..., position, :] for output in outputs])
            if position + 1 < ids.shape[-1]:
                ids[..., position + 1] = np.argmax(steps[-1][1], axis=-1)
        positions = range(begin - 1, begin - 1 + len(steps))
        stacked = [np.stack(values) for values in zip(*steps, strict=True)]
        return Continuation(feeds, positions, accuracy_output("logits", *stacked))


def require_elements(outputs: Mapping[str, Array]) -> None:
    """Raise a Fault UNSUPPORTED if no output has an element."""
    if not any(value.size for value in outputs.values()):
        raise Fault(Reason.UNSUPPORTED, f"nothing to compare: {', '.join(outputs)} without elements")


def accuracy_output(name: str, narrow: Array, wide: Array, moved: Array) -> NamedOutput:
    """Return an expected output that allows :data:`FACTOR` times the error of float32 against ``wide`` in float64.

    That error is the larger one of ``narrow``, the float32 reference, and of ``moved``, float64 with rounded inputs and
    partial sums, since one order of sums may happen to be exact; at least a rounding. The largest error of all elements
    that are not ``_FAR_LARGER`` counts. Integers have to be equal.

    Raises:
        Fault: NOTHING_COMPARED if all elements are NaN.
    """
    kind = dtype_of(narrow.dtype)
    if not kind.is_inexact:
        return NamedOutput(name, narrow, rule=Rule(kind=RuleClass.EXACT, fixed=True))
    if wide.size and np.isnan(wide).all():
        raise Fault(Reason.NOTHING_COMPARED, f"{name} is NaN everywhere in float64; see the inputs")
    wide = wide.astype(np.float64, copy=False)  # the evaluator computes operators of ai.onnx.ml in float32
    wide = np.where(np.abs(wide) > kind.max_finite * (1 + kind.unit_roundoff), np.copysign(np.inf, wide), wide)
    allowed = _allowed(narrow.astype(np.float64), wide, moved, kind.unit_roundoff)
    formula = f"{FACTOR:g} x the error of {kind} against float64, {float(np.max(allowed, initial=0.0)):.3g}"
    unit = dtype("float64" if kind.name == "float64" else "float32").unit_roundoff
    budget = ErrorBudget(worst=FACTOR * allowed / unit)
    return NamedOutput(name, Unrounded(wide, kind), rule=Rule(kind=RuleClass.COMPOSED, formula=formula), terms=budget)


def _allowed(narrow: Array, wide: Array, moved: Array, unit: float) -> Array:
    """Return the error of float32 for each element; infinities and NaN that only float32 has are ignored."""
    allowed = np.zeros(wide.shape)
    is_finite = np.isfinite(wide)
    known = wide[is_finite]
    sizes = np.abs(known)
    if not sizes.size:
        return allowed
    errors = 2 * unit * sizes
    for each in (narrow, moved):
        if each.shape != wide.shape:  # of Unique and Range, whose sizes depend on elements
            continue
        error = np.abs(each[is_finite] - known)
        np.maximum(errors, error, out=errors, where=np.isfinite(error))
    nonzero = sizes[sizes > 0]
    rank = len(nonzero) // 100  # smaller elements are results of cancellation
    least = np.partition(nonzero, rank)[rank] if nonzero.size else 1.0
    powers = np.frexp(np.maximum(sizes, least))[1]
    powers -= powers.min()
    worst = np.zeros(int(powers.max()) + 1)
    np.maximum.at(worst, powers, errors)
    allowed[is_finite] = np.maximum.accumulate(worst)[np.minimum(powers + _FAR_LARGER, len(worst) - 1)]
    return allowed


def _widened(value: Array) -> Array:
    return value.astype(np.float64) if dtype_of(value.dtype).is_inexact else value


def moved(value: Array) -> Array:
    """Return the elements in float64, each moved by up to one rounding of its dtype; integers unchanged."""
    wide, kind = _widened(value), dtype_of(value.dtype)
    if wide is value:
        return value
    return wide * (1 + kind.unit_roundoff * np.random.default_rng(_SEED).uniform(-1, 1, value.shape))


def subject_of_file(file: str, inputs: str, sizes: str, seed: int) -> Subject:
    """Open an ONNX file, with the inputs of a file of tensors or drawn by ``seed``.

    ``sizes`` sets open sizes of the model: ``batch=2,sequence=8``.

    Raises:
        UsageError: for a file that is no model, or inputs or sizes that do not fit.
    """
    graph = Graph(opened_file(Path(file)))
    specs = list(graph.input_specs())
    if strange := [name for name, kind, _ in specs if not kind]:
        raise UsageError(
            f"{file}: input {strange[0]} is not a tensor of numbers, the only kind that can be drawn or read"
        )
    stated = dict[str, int]()
    for name, _, number in (entry.partition("=") for entry in sizes.split(",") if entry):
        if name not in graph.open_sizes:
            names = ", ".join(graph.open_sizes) or "none"
            raise UsageError(f"--config sets {name}, expected an open size of the model: {names}")
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"--config sets {name}={number}, expected an integer above 0")
        stated[name] = int(number)
    if inputs:
        read = read_tensors(Path(inputs), [name for name, _, _ in specs])
        for name, kind, shape in specs:
            actual = list(read[name].shape)
            expected = [*shape]
            for axis, (size, length) in enumerate(zip(shape, actual, strict=False)):
                if isinstance(size, str):  # an open size has one value in all inputs
                    expected[axis] = stated.setdefault(size, length) if size else length
            if str(read[name].dtype) != kind or expected != actual:
                raise UsageError(f"{name} in {inputs} is {read[name].dtype} {actual}, expected {kind} {expected}")
        return Subject(graph, read)
    rng = np.random.default_rng([_SEED, seed])
    feeds = {}
    for name, kind, shape in specs:
        known = tuple(_open_size(size, stated) if isinstance(size, str) else size for size in shape)
        drawn: Array = np.ones(known)
        if dtype(kind).is_inexact:
            drawn = rng.standard_normal(known)
        elif kind != "bool" and "mask" not in name:
            drawn = rng.integers(0, _table_rows(graph, name), known)
        feeds[name] = drawn.astype(numpy_dtype(dtype(kind)))
    return Subject(graph, feeds)


def _open_size(name: str, stated: Mapping[str, int]) -> int:
    """Return the value of an open size; exporters of language models may name it as a sum of others."""
    if name == "total_sequence_length" and name not in stated:
        name = "past_sequence_length + sequence_length"
    if name in stated or "+" not in name:
        return stated.get(name, 1 if "batch" in name.lower() or name == "N" else _OPEN)
    parts = (part.strip() for part in name.split("+"))
    return sum(int(part) if part.isdecimal() else _open_size(part, stated) for part in parts)


def read_tensors(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Return the tensors of a file in the order of ``names``; .npy and .pb files have one tensor without a name.

    Raises:
        UsageError: for a file that cannot be read, or whose tensors differ from ``names``.
    """
    try:
        require_regular(path)
        suffix = path.suffix.lower()
        if suffix == ".npy":
            tensors = {names[0]: np.load(path, allow_pickle=False)}
        elif suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                tensors = dict(archive)
        elif suffix == ".pb":
            tensors = {names[0]: tensor_of_file(path)}
        else:
            tensors, _ = tensors_in_file(path)
    except UNREADABLE as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if {*tensors} != {*names}:
        raise UsageError(f"{path} has {', '.join(sorted(tensors)) or 'no tensors'}, expected {', '.join(names)}")
    # np.load returns bytes for a member of an archive that is not an array.
    arrays = {name: np.asarray(tensors[name]) for name in names}
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}


def _table_rows(graph: Graph, name: str) -> int:
    """Return the rows of the largest table that the indices ``name`` select from; 2 without such a table."""
    counts = [2]
    for node, position in graph.readers(name):
        if node.op_type == "Gather" and position == 1:
            table = graph.constant(node.input[0])
            counts += [] if table is None else [table.shape[0]]
        elif node.op_type in ("Cast", "Unsqueeze", "Reshape", "Flatten", "Squeeze"):
            counts.append(_table_rows(graph, node.output[0]))
    return max(counts)
