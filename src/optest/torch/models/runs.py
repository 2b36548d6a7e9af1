"""A named model of torch, run without a graph: eager, or by a backend of ``torch.compile``; arrays in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from optest.numerics import Array
from optest.spec import Fault, Reason
from optest.torch.calls.compiled import require_compiler
from optest.torch.models.adapters import TorchModel
from optest.torch.models.graphs import exported, graph_of
from optest.torch.models.language import CausalAttention
from optest.torch.tensors import from_torch, on_cpu

__all__ = ["TorchRun", "exported_content", "inputs_of"]


def inputs_of(model: TorchModel, seed: int) -> dict[str, Array]:
    return {name: from_torch(each) for name, each in model.inputs(seed).items()}


def exported_content(model: TorchModel, feeds: Mapping[str, Array]) -> bytes:
    """As :func:`optest.torch.models.graphs.exported`."""
    return exported(model, _tensors(feeds))


class TorchRun:
    """``variant`` is ``eager`` or a backend of ``torch.compile``; ``threads`` 0 leaves torch its own number."""

    def __init__(self, model: TorchModel, variant: str = "eager", threads: int = 0) -> None:
        if variant != "eager":
            require_compiler(variant)
        if threads:
            torch.set_num_threads(threads)
        self._model = model
        self._variant = variant

    def __str__(self) -> str:
        parameters = sum(each.numel() for each in self._model.module.parameters())
        kinds = {str(each.dtype).removeprefix("torch.") for each in self._model.module.parameters()}
        precision = ", ".join(sorted(kinds)) or "float32"
        return f"{parameters:,} parameters; {precision}, threads: {torch.get_num_threads()}; torch {torch.__version__}"

    def specs(self) -> list[tuple[str, str, list[int | str]]]:
        inputs = inputs_of(self._model, 0)
        return [(name, each.dtype.name, [f"size {n}" for n in range(each.ndim)]) for name, each in inputs.items()]

    @cached_property
    def _run(self) -> TorchModel:
        if self._variant == "eager":
            return self._model
        return replace(self._model, module=torch.compile(self._model.module, backend=self._variant))

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {name: from_torch(each) for name, each in self._run.run(_tensors(feeds)).items()}

    def keep_cache(self) -> bool:
        """Keep keys and values from here on, so that a run is about further tokens; False for a model that cannot."""
        for each in self._attentions:
            each.keeps, each.kept = True, None
        return bool(self._attentions)

    @property
    def _attentions(self) -> list[CausalAttention]:
        modules = self._model.module.modules() if self._variant == "eager" else ()
        return [each for each in modules if isinstance(each, CausalAttention)]

    @contextmanager
    def _without_cache(self) -> Iterator[None]:
        before = [(each, each.keeps, each.kept) for each in self._attentions]
        for each in self._attentions:
            each.keeps, each.kept = False, None
        yield
        for each, keeps, kept in before:
            each.keeps, each.kept = keeps, kept

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[str, Array, str, str]]:
        """Every tensor of torch's graph, in its order, step by step in eager torch.

        Raises:
            Fault: UNSUPPORTED where torch has compiled the model, or it keeps keys and values; COMPILE if it cannot be
                exported to a graph.
        """
        if self._variant != "eager":
            raise Fault(
                Reason.UNSUPPORTED, f"torch.compile shows no values inside ({self._variant}): --variant eager does"
            )
        if any(each.keeps for each in self._attentions):
            raise Fault(
                Reason.UNSUPPORTED, "with --kv-cache no values inside are shown, since the graph is that without"
            )
        inputs = _tensors(feeds)
        graph = graph_of(self._model, inputs)
        names = {value: name for name, value in graph.outputs.items()}
        for step, value in graph.values(inputs):
            place = f"{step.place}: {step.code}" if step.code else step.place
            where = ", ".join(each for each in (step.module, place) if each)
            if isinstance(value, torch.Tensor):
                yield names.get(step.name, step.name), from_torch(value), step.operator, where

    def files(self, feeds: Mapping[str, Array]) -> dict[str, bytes]:
        """torch's graph as code."""
        with self._without_cache():
            program = graph_of(self._model, _tensors(feeds)).program
        return {"program.txt": program.print_readable(print_output=False).encode()}

    def profiled(self, feeds: Mapping[str, Array], trace: Path) -> list[tuple[str, int, float]]:
        """By torch.profiler: time of the operator itself, on the CPU."""
        with self._without_cache():
            self.outputs(feeds)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
                self.outputs(feeds)
        profiler.export_chrome_trace(str(trace))
        return [(each.key, each.count, each.self_cpu_time_total / 1e6) for each in profiler.key_averages()]


def _tensors(feeds: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    return dict(zip(feeds, on_cpu(list(feeds.values())), strict=True))
