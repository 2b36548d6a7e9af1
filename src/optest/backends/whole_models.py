"""Whole models as graphs of named values: the interface by which a reference and a backend are compared inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_FRAME = re.compile(r'File "([^"<]+)", line (\d+).*(?:\n(?! *File )\s*(.*))?')


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes, by number, that compute ``outputs`` from ``inputs``; the last node computes the first output."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[int, ...]


class ModelGraph(Protocol):
    """The values of a model, by name, and how to compute them one after another.

    ``node_of_value`` has the number of the node that computes each value.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node_of_value: Mapping[str, int]

    @property
    def widened(self) -> ModelGraph:
        """The same graph in float64."""

    @property
    def perturbed(self) -> ModelGraph:
        """The same graph in float64, with an error in each sum of products as large as rounding partial sums causes."""

    @property
    def random(self) -> str:
        """A random operator in the graph, else ""."""

    def dtype_name(self, value: str) -> str:
        """Return the dtype of a value, "" if it is no tensor or unknown."""

    def operator(self, number: int) -> str:
        """Return the operator of a node."""

    def origin_of(self, number: int) -> str:
        """Return the origin of a node as text: its module and line of code, as far as known."""

    def region(self, outputs: Sequence[str], given: Collection[str]) -> Region:
        """Return the nodes that compute ``outputs`` from the values in ``given`` and, if needed, the graph's inputs."""

    def stream(self, region: Region, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield every value of a region, node by node; raise Fault UNSUPPORTED for an operator it cannot compute."""


class ModelProgram(Protocol):
    """A model as a backend runs it; ``str()`` of it has precision, threads and versions."""

    @property
    def graph(self) -> ModelGraph:
        """The graph of the nodes that the backend runs."""

    @property
    def is_shown(self) -> bool:
        """Return whether :attr:`graph` is the optimised graph; else its nodes run as the backend runs each singly."""

    @property
    def regions(self) -> Sequence[Region]:
        """The regions between values that also exist before optimisation, in the order of the nodes."""

    @property
    def weights(self) -> Sequence[str]:
        """The values without inputs that also exist before optimisation and are in none of the :attr:`regions`."""

    @property
    def levels(self) -> Sequence[str]:
        """The variants of the backend; the first optimises least."""

    @property
    def passes(self) -> Sequence[str]:
        """The optimiser passes that change the model; the variant ``LEVEL-PASS`` disables one."""

    def outputs(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run the backend and return its outputs by name."""

    def run_region(self, region: Region, given: Mapping[str, Any]) -> dict[str, Any]:
        """Run only the nodes of a region on the ``given`` values, and return its outputs."""

    def inner_values(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return values inside the model, each computed from those before it, beginning with ``feeds``."""

    def whole_outputs(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of the whole model, computed by as many threads as :meth:`watched` uses."""

    def specs(self) -> list[tuple[str, str, list[int | str]]]:
        """Return name, dtype and sizes of each input; a dynamic size is a name."""

    def values(self, feeds: Mapping[str, Any], /) -> Iterable[tuple[str, Any, str, str]]:
        """Yield name, elements, operator and origin of each value as executed; may raise Fault UNSUPPORTED."""

    def files(self, feeds: Mapping[str, Any], /) -> Mapping[str, bytes]:
        """Return the files of the program, by name."""

    def profile(self, feeds: Mapping[str, Any], trace: Path, /) -> list[tuple[str, int, float]]:
        """Run once after a warm-up and return operator, calls and total seconds of each kind; may write ``trace``."""


def region_of(
    outputs: Sequence[str],
    given: Collection[str],
    node_of_value: Mapping[str, int],
    read_by: Callable[[int], Iterable[str]],
    constants: Collection[str] = (),
) -> Region:
    """Return the region that computes ``outputs``, back to ``given`` values, ``constants`` and values of no node."""
    numbers, inputs, seen = set[int](), dict[str, None](), set[str]()
    pending = [*outputs]
    while pending:
        name = pending.pop()
        if name in seen or not name:
            continue
        seen.add(name)
        if (name in given and name not in outputs) or name not in node_of_value:
            if name not in constants:
                inputs[name] = None
            continue
        numbers.add(node_of_value[name])
        pending += read_by(node_of_value[name])
    return Region(tuple(sorted(inputs)), tuple(outputs), tuple(sorted(numbers)))


def regions_of(graph: ModelGraph, known: Collection[str]) -> list[Region]:
    """Return the regions that compute the ``known`` values and the output tensors, in the order of the nodes.

    A region without inputs is constant; it becomes part of the regions that read it.
    """
    tensors = (output for output in graph.outputs if output in graph.node_of_value and graph.dtype_name(output))
    wanted, values_of = {*known, *tensors}, dict[int, list[str]]()
    for name, number in graph.node_of_value.items():
        if name in wanted:
            values_of.setdefault(number, []).append(name)
    regions = []
    for number in sorted(values_of):
        region = graph.region(values_of[number], wanted.difference(values_of[number]))
        if region.inputs:
            regions.append(region)
        else:
            wanted.difference_update(values_of[number])
    return regions


def origin_in_trace(trace: str, module: str) -> str:
    """Return the module, and file, line and statement of the innermost frame outside of torch.nn in a stack trace."""
    frames: list[tuple[str, str, str]] = _FRAME.findall(trace)
    frames = [frame for frame in frames if "/torch/nn/" not in frame[0]] or frames
    origin = [f"{Path(file).name}:{line}" + (f": {code}" if code else "") for file, line, code in frames[-1:]]
    return ", ".join(filter(None, [module, *origin]))
