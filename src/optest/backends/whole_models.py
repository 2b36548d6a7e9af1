"""Whole models as graphs of values: what a reference and a backend offer so that they can be compared inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_FRAME = re.compile(r'File "([^"<]+)", line (\d+).*(?:\n(?! *File )\s*(.*))?')


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes by number that make ``outputs`` of ``inputs``; the last one makes the first output."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[int, ...]


class ModelGraph(Protocol):
    """The values of a model, by name, and how to compute them one after another."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    makers: Mapping[str, int]
    """The number of the node that makes a value."""

    @property
    def widened(self) -> ModelGraph:
        """The same in float64."""

    @property
    def perturbed(self) -> ModelGraph:
        """The same in float64, each sum of products with an error as rounding its partial sums may make."""

    @property
    def random(self) -> str:
        """An operator whose results are drawn at random, "" if there is none."""

    def dtype_name(self, value: str) -> str:
        """The dtype of a value, "" where it is no tensor or not known."""

    def operator(self, number: int) -> str:
        """What a node computes."""

    def place_of(self, number: int) -> str:
        """Where a node is from, in words: the module and the line of code, as far as they are known."""

    def region(self, outputs: Sequence[str], given: Collection[str]) -> Region:
        """The nodes that make ``outputs`` of the values in ``given`` and, beyond these, of the graph's inputs."""

    def stream(self, region: Region, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Every value of a region, node by node; each is kept until its last reader has run.

        Raises:
            Fault: UNSUPPORTED for an operator that nobody computes here.
        """


class ModelProgram(Protocol):
    """A model as a backend runs it; its text says precision, threads and versions."""

    @property
    def graph(self) -> ModelGraph:
        """The nodes that are run."""

    @property
    def is_shown(self) -> bool:
        """Whether :attr:`graph` is what is run; else its nodes are run as the backend runs each alone."""

    @property
    def regions(self) -> Sequence[Region]:
        """What makes each value that the model has before it is optimised, too, in the order of the nodes."""

    @property
    def weights(self) -> Sequence[str]:
        """The values without inputs that the model has before it is optimised, too, as :attr:`regions` have no own."""

    @property
    def levels(self) -> Sequence[str]:
        """The variants of the backend, the first of which optimises least."""

    @property
    def passes(self) -> Sequence[str]:
        """The passes of the optimizer that change the model, each of which the variant ``LEVEL-PASS`` leaves out."""

    def outputs(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """What the backend answers, by the names of the model's outputs."""

    def made(self, region: Region, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the nodes of a region make of ``given``, by themselves."""

    def watched(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Values inside the model, each computed from those before it, beginning with ``feeds``."""

    def unwatched(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of the whole model, computed by as many threads as :meth:`watched` uses."""

    def specs(self) -> list[tuple[str, str, list[int | str]]]:
        """Name, dtype and sizes of each input; a size that is open is a name."""

    def values(self, feeds: Mapping[str, Any], /) -> Iterable[tuple[str, Any, str, str]]:
        """Values in the order of execution: name, elements, operator, and where in the model it is from.

        Raises:
            Fault: UNSUPPORTED where they cannot be seen.
        """

    def files(self, feeds: Mapping[str, Any], /) -> Mapping[str, bytes]:
        """The program itself, by names of files."""

    def profiled(self, feeds: Mapping[str, Any], trace: Path, /) -> list[tuple[str, int, float]]:
        """Operator, calls and seconds in all, for each kind, in one run after a warm-up; ``trace`` may be written.

        Raises:
            Fault: UNSUPPORTED where there is no profiler.
        """


def region_of(
    outputs: Sequence[str],
    given: Collection[str],
    makers: Mapping[str, int],
    read_by: Callable[[int], Iterable[str]],
    constants: Collection[str] = (),
) -> Region:
    """The region of ``outputs``, back to ``given`` values, constants, and what no node makes."""
    numbers, inputs, seen = set[int](), dict[str, None](), set[str]()
    pending = [*outputs]
    while pending:
        name = pending.pop()
        if name in seen or not name:
            continue
        seen.add(name)
        if (name in given and name not in outputs) or name not in makers:
            if name not in constants:
                inputs[name] = None
            continue
        numbers.add(makers[name])
        pending += read_by(makers[name])
    return Region(tuple(sorted(inputs)), tuple(outputs), tuple(sorted(numbers)))


def regions_of(graph: ModelGraph, known: Collection[str]) -> list[Region]:
    """What makes the values in ``known`` and the outputs, in the order of the nodes; constants are part of others."""
    tensors = (each for each in graph.outputs if each in graph.makers and graph.dtype_name(each))
    wanted, made_by = {*known, *tensors}, dict[int, list[str]]()
    for name, number in graph.makers.items():
        if name in wanted:
            made_by.setdefault(number, []).append(name)
    found = []
    for number in sorted(made_by):
        region = graph.region(made_by[number], wanted.difference(made_by[number]))
        if region.inputs:
            found.append(region)
        else:
            wanted.difference_update(made_by[number])
    return found


def place_in(trace: str, module: str) -> str:
    """The module, and file, line and statement of the innermost frame of a stack trace that is not of torch.nn."""
    frames: list[tuple[str, str, str]] = _FRAME.findall(trace)
    own = [each for each in frames if "/torch/nn/" not in each[0]] or frames
    places = [f"{Path(file).name}:{line}" + (f": {code}" if code else "") for file, line, code in own[-1:]]
    return ", ".join(filter(None, [module, *places]))
