"""A model by its name or file, on a backend, with inputs: for the commands that compare nothing with a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.models.driver import onnx_backend, variant_of
from optest.models.hooks import Program
from optest.models.opened import is_file, torch_model
from optest.models.subjects import read_tensors, subject_of_file
from optest.numerics import Array
from optest.onnx.graphs import Graph
from optest.onnx.whole_models import OnnxProgram
from optest.registry import load_object

__all__ = ["Runnable", "model_by_name", "runnable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """A program with feeds, ready to run. ``vocabulary`` and ``context``, the most tokens, are 0 where not known."""

    backend: str
    program: Program
    feeds: Mapping[str, Array]
    notes: Sequence[str] = ()
    vocabulary: int = 0
    context: int = 0


def runnable(given: Mapping[str, Any], *, batch: int = 0, tokens: int = 0, room: int = 0, threads: int = 0) -> Runnable:
    """The model ``what`` on ``backend`` by ``variant``, with ``inputs`` of a file or drawn by ``seed``.

    ``batch`` and ``tokens`` are sizes of the inputs, 0 for the model's own; ``room`` is for further tokens, where the
    number is fixed once a model is exported. ``threads`` 0 is the backend's own number.

    Raises:
        UsageError, Unavailable, Fault: for whatever cannot be opened, or exported for the backend.
    """
    if is_file(given["what"]):
        return _of_file(given, batch, tokens, threads)
    model = model_by_name(given)
    of_torch = "optest.torch.models.runs:"
    feeds: Mapping[str, Array] = load_object(f"{of_torch}inputs_of")(model, given["seed"])
    if given["inputs"]:
        feeds = read_tensors(Path(given["inputs"]), [*feeds])
    if tokens and not model.causal:
        raise UsageError(f"{given['what']} is no causal language model; a number of tokens means nothing to it")
    if tokens > model.context > 0:
        raise UsageError(f"{tokens} tokens do not fit into {model.context} positions of {given['what']}: see --config")
    feeds = {name: _resized(value, batch, tokens) for name, value in feeds.items()}
    backend = given["backend"] or "torch"
    about = {"notes": model.notes, "vocabulary": model.vocabulary, "context": model.context}
    if backend == "torch":
        variant = given["variant"] or "eager"
        program = load_object(f"{of_torch}TorchRun")(model, variant, threads)
        return Runnable(backend=f"torch:{variant}", program=program, feeds=feeds, **about)
    if room:
        longest = min(tokens + room, model.context or tokens + room)
        feeds = {name: _resized(value, batch, longest) for name, value in feeds.items()}
    graph = Graph(load_object(f"{of_torch}exported_content")(model, feeds))
    return Runnable(**_on_onnx(graph, backend, given["variant"], threads), feeds=feeds, **about)


def model_by_name(given: Mapping[str, Any]) -> Any:
    """The model in torch, with the weights of a file or drawn.

    Raises:
        UsageError, Unavailable: as :func:`optest.torch.models.adapters.opened_model`.
    """
    stated = {"model": given["what"], "config": ",".join(given["config"])}
    return torch_model({**stated, **{name: given[name] or "" for name in ("preset", "weights")}}, given["seed"])


def _of_file(given: Mapping[str, Any], batch: int, tokens: int, threads: int) -> Runnable:
    if given["weights"]:
        raise UsageError(f"{given['what']} has its weights inside; --weights is for models by name")
    subject = subject_of_file(given["what"], given["inputs"] or "", ",".join(given["config"]), given["seed"])
    about = _on_onnx(subject.graph, given["backend"] or "onnxruntime", given["variant"], threads)
    feeds = {name: _resized(value, batch, tokens) for name, value in subject.feeds.items()}
    for name, _, sizes in about["program"].specs():
        if any(isinstance(size, int) and size != now for size, now in zip(sizes, feeds[name].shape, strict=True)):
            raise UsageError(f"{name} of {given['what']} has fixed sizes, {sizes}, and no others")
    return Runnable(**about, feeds=feeds)


def _on_onnx(graph: Any, backend: str, variant: str | None, threads: int) -> dict[str, Any]:
    driver = onnx_backend(backend)
    variant = variant_of(driver, variant)
    if threads:
        driver.use_threads(threads)
    program = OnnxProgram(driver, graph, variant)
    return {"backend": f"{backend}:{variant}" if variant else backend, "program": program}


def _resized(value: Array, batch: int, tokens: int) -> Array:
    """The elements again and again, or the first of them; tokens are the second axis of integers."""
    shape = list(value.shape)
    if batch and shape:
        shape[0] = batch
    if tokens and len(shape) == 2 and value.dtype.kind in "iub":
        shape[1] = tokens
    return np.resize(value, shape)
