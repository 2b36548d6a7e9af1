"""The model that is asked, its inputs, and what its values should be: in float64, with the error that float32 makes."""

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

FACTOR = 3.0
"""How many times the float32 reference's own error a value may have: right graphs of ONNX Runtime reach 2.6 in one
node, wrong ones begin at 4 (measured on GPT-2 and ResNet)."""
_OPEN = 16
"""An open size of an input that nobody states, but for a batch, which is 1."""
_FAR_LARGER = 12
"""An element so many powers of two larger than another (a mask among scores) says nothing of the error of that."""
_MOST_STEPS = 8
_SEED = 0x6F7074


class Continuation(NamedTuple):
    """Greedy generation by the model in float64: the inputs of each step, the position that it reads, what it says."""

    feeds: Sequence[Mapping[str, Array]]
    positions: Sequence[int]
    expected: NamedOutput


class Subject:
    """A graph of values with inputs, drawn or given; ``model`` is the torch model that it is of."""

    def __init__(self, graph: ModelGraph, feeds: Mapping[str, Array], model: Any = None) -> None:
        if graph.random:
            raise UsageError(f"the model draws random numbers ({graph.random}): two runs of it cannot be compared")
        self.model = model
        self.graph = graph
        self.feeds = feeds
        self._ahead: Iterator[tuple[str, tuple[Array, Array, Array]]] = iter(())
        self._waiting = dict[str, tuple[Array, Array, Array]]()
        self._has_stopped = False
        self._passed = {*graph.makers, *graph.outputs}

    @cached_property
    def _narrow(self) -> Mapping[str, Array]:
        """The values in the model's own dtypes, up to the first node without a reference."""
        values = dict[str, Array]()
        with suppress(Fault):
            values.update(self.graph.stream(self._all, self.feeds))
        return values

    @cached_property
    def _all(self) -> Region:
        return self.graph.region([*dict.fromkeys((*self.graph.makers, *self.graph.outputs))], self.feeds)

    def activation(self, name: str) -> Array:
        """Return an input or a value in the model's own dtypes; raise a Fault behind a node without a reference."""
        known = self.feeds if name in self.feeds else self._narrow
        if name in known:
            return known[name]
        made: dict[str, Array] = dict(self.graph.stream(self.graph.region([name], self.feeds), self.feeds))
        return made[name]

    def require_reference(self, values: Sequence[str]) -> None:
        """Raise the Fault of the last of ``values`` if all of them lack a reference."""
        for name in values:
            with suppress(Fault) if name != values[-1] else nullcontext():
                deque(self.graph.stream(self.graph.region([name], self.feeds), self.feeds), maxlen=0)
                return

    def expected(
        self, outputs: Sequence[str], given: Sequence[str] = (), among: Collection[str] = ()
    ) -> list[NamedOutput]:
        """What values should be, computed from those in ``given`` as float32 has them, or from the model's inputs;
        then ``among`` has those that further calls want.

        Raises:
            Fault: as :func:`judged_by_accuracy`; UNSUPPORTED if no output has an element.
        """
        region = self.graph.region(outputs, given)
        if given or not region.inputs or self._has_stopped:
            # More than is given where an optimizer takes equal values in place of others, which do not come of these.
            made = dict(self._computed(region, {name: self.activation(name) for name in region.inputs}))
        else:
            self._has_stopped = True  # at a node without a reference, which says nothing of values beside it
            made = self._in_order(outputs, {*outputs, *among})
            self._has_stopped = False
        require_elements({name: made[name][1] for name in outputs})
        return [judged_by_accuracy(name, *made[name]) for name in outputs]

    def _in_order(self, outputs: Sequence[str], among: Collection[str]) -> dict[str, tuple[Array, Array, Array]]:
        """Values computed from the model's inputs, each kept until it is wanted: a trace wants them one after another.
        What was handed out or left out is computed again, with all before it."""
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
        """Values in the model's own dtypes, in float64, and in float64 with errors."""
        narrow = self.graph.stream(region, given) if given is self.feeds else None  # else it is known
        wanted = {*region.outputs}
        for name in wanted.difference(self.graph.makers):  # an output may be an input, or a constant
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
        """From half of the tokens on, as many as there is room for, eight at most. Only for causal models: what stands
        behind a position does not matter."""
        tokens = next(name for name, value in self.feeds.items() if value.dtype.kind == "i")
        ids, logits = self.feeds[tokens].copy(), self.graph.outputs[0]
        begin = max(ids.shape[-1] // 2, 1)
        ids[..., begin:] = 0
        feeds, steps = [], []
        for position in range(begin - 1, min(ids.shape[-1], begin - 1 + _MOST_STEPS)):
            given = {**self.feeds, tokens: ids.copy()}
            graphs = (self.graph, self.graph.widened, self.graph.perturbed)
            made = (dict(each.stream(each.region([logits], given), given))[logits] for each in graphs)
            feeds.append(given)
            steps.append([each[..., position, :] for each in made])
            if position + 1 < ids.shape[-1]:
                ids[..., position + 1] = np.argmax(steps[-1][1], axis=-1)
        positions = range(begin - 1, begin - 1 + len(steps))
        stacked = [np.stack(each) for each in zip(*steps, strict=True)]
        return Continuation(feeds, positions, judged_by_accuracy("logits", *stacked))


def require_elements(outputs: Mapping[str, Array]) -> None:
    """Raise a Fault UNSUPPORTED if no output has an element."""
    if not any(each.size for each in outputs.values()):
        raise Fault(Reason.UNSUPPORTED, f"nothing to compare: {', '.join(outputs)} without elements")


def judged_by_accuracy(name: str, narrow: Array, wide: Array, moved: Array) -> NamedOutput:
    """An output that may be :data:`FACTOR` times as far from the float64 values ``wide`` as float32 is.

    How far that is says the float32 reference ``narrow``, and what roundings of the inputs and of partial sums do
    (``moved``), since the error of one way to compute a small tensor may happen to be 0, and others sum in other
    orders: the largest error of all elements that are not :data:`_FAR_LARGER`, or a unit of the largest
    of these, which is what good implementations of tanh or exp are off by.

    Raises:
        Fault: NOTHING_COMPARED if all elements are NaN.
    """
    kind = dtype_of(narrow.dtype)
    if not kind.is_inexact:
        return NamedOutput(name, narrow, rule=Rule(kind=RuleClass.EXACT, stands=True))
    if wide.size and np.isnan(wide).all():
        raise Fault(Reason.NOTHING_COMPARED, f"{name} is NaN everywhere in float64; see the inputs")
    wide = wide.astype(np.float64, copy=False)  # of ai.onnx.ml, the evaluator computes float32
    wide = np.where(np.abs(wide) > kind.max_finite * (1 + kind.unit_roundoff), np.copysign(np.inf, wide), wide)
    allowed = _allowed(narrow.astype(np.float64), wide, moved, kind.unit_roundoff)
    formula = f"{FACTOR:g} x the error of {kind} against float64, {float(np.max(allowed, initial=0.0)):.3g}"
    unit = dtype("float64" if kind.name == "float64" else "float32").unit_roundoff
    budget = ErrorBudget(worst=FACTOR * allowed / unit)
    return NamedOutput(name, Unrounded(wide, kind), rule=Rule(kind=RuleClass.COMPOSED, formula=formula), terms=budget)


def _allowed(narrow: Array, wide: Array, moved: Array, unit: float) -> Array:
    """The error of each element that float32 may have; what overflows inside float32 alone says nothing of it."""
    allowed = np.zeros(wide.shape)
    is_finite = np.isfinite(wide)
    known = wide[is_finite]
    sizes = np.abs(known)
    if not sizes.size:
        return allowed
    errors = 2 * unit * sizes
    for each in (narrow, moved):
        if each.shape != wide.shape:  # sizes that follow from elements, as of Unique and Range
            continue
        error = np.abs(each[is_finite] - known)
        np.maximum(errors, error, out=errors, where=np.isfinite(error))
    nonzero = sizes[sizes > 0]
    rank = len(nonzero) // 100  # what is smaller has cancelled
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
    """Each element moved by up to one rounding of its dtype, in float64."""
    wide, kind = _widened(value), dtype_of(value.dtype)
    if wide is value:
        return value
    return wide * (1 + kind.unit_roundoff * np.random.default_rng(_SEED).uniform(-1, 1, value.shape))


def subject_of_file(file: str, inputs: str, sizes: str, seed: int) -> Subject:
    """The ONNX model of a file, with the inputs of a file of safetensors, or drawn by ``seed``.

    ``sizes`` states those that the model leaves open: ``batch=2,sequence=8``.

    Raises:
        UsageError: for a file that is no model, or has other inputs than it.
    """
    graph = Graph(opened_file(Path(file)))
    specs = list(graph.input_specs())
    if strange := [name for name, kind, _ in specs if not kind]:
        raise UsageError(f"{file}: input {strange[0]} is no tensor of numbers; no other input can be drawn or read")
    stated = dict[str, int]()
    for name, _, number in (each.partition("=") for each in sizes.split(",") if each):
        if name not in graph.open_sizes:
            there = ", ".join(graph.open_sizes) or "none"
            raise UsageError(f"--config states {name}, but the sizes that the model leaves open are {there}")
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"--config {name}={number} should state a whole number above 0")
        stated[name] = int(number)
    if inputs:
        read = read_tensors(Path(inputs), [name for name, _, _ in specs])
        for name, kind, shape in specs:
            found = list(read[name].shape)
            wanted = [*shape]
            for place, (size, given) in enumerate(zip(shape, found, strict=False)):
                if isinstance(size, str):  # the same wherever it is named
                    wanted[place] = stated.setdefault(size, given) if size else given
            if str(read[name].dtype) != kind or wanted != found:
                raise UsageError(f"{name} in {inputs} is {read[name].dtype} {found}, expected {kind} {wanted}")
        return Subject(graph, read)
    rng = np.random.default_rng([_SEED, seed])
    feeds = {}
    for name, kind, shape in specs:
        known = tuple(_size(each, stated) if isinstance(each, str) else each for each in shape)
        drawn: Array = np.ones(known)
        if dtype(kind).is_inexact:
            drawn = rng.standard_normal(known)
        elif kind != "bool" and "mask" not in name:
            drawn = rng.integers(0, _rows(graph, name), known)
        feeds[name] = drawn.astype(numpy_dtype(dtype(kind)))
    return Subject(graph, feeds)


def _size(name: str, stated: Mapping[str, int]) -> int:
    """Return an open size, which exporters of language models may name as a sum of others."""
    if name == "total_sequence_length" and name not in stated:
        name = "past_sequence_length + sequence_length"
    if name in stated or "+" not in name:
        return stated.get(name, 1 if "batch" in name.lower() or name == "N" else _OPEN)
    parts = (each.strip() for each in name.split("+"))
    return sum(int(each) if each.isdecimal() else _size(each, stated) for each in parts)


def read_tensors(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Return the tensors of a file, in the order of ``names``; .npy and .pb have one, which has no name.

    Raises:
        UsageError: for a file that cannot be read, or has other tensors.
    """
    try:
        require_regular(path)
        suffix = path.suffix.lower()
        if suffix == ".npy":
            found = {names[0]: np.load(path, allow_pickle=False)}
        elif suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                found = dict(archive)
        elif suffix == ".pb":
            found = {names[0]: tensor_of_file(path)}
        else:
            found, _ = tensors_in_file(path)
    except UNREADABLE as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if {*found} != {*names}:
        raise UsageError(f"{path} has {', '.join(sorted(found)) or 'no tensors'}, expected {', '.join(names)}")
    # An archive of NumPy has bytes for a member that is no array.
    arrays = {name: np.asarray(found[name]) for name in names}
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}


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
