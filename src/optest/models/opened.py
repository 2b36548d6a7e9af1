"""Opening of models by name or file, on backends: as runnable programs, and as attributes of cases."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import backend_manager
from optest.backends.command_abilities import HasVariants
from optest.backends.whole_models import ModelProgram
from optest.errors import UsageError
from optest.generators.files import save_tensors
from optest.models.subjects import Subject, moved, read_tensors, subject_of_file
from optest.numerics import Array
from optest.onnx.driver import OnnxBackend
from optest.onnx.graphs import Graph, opened_file
from optest.onnx.whole_models import OnnxProgram
from optest.plan.scalars import json_or_text
from optest.registry import load_object
from optest.settings import resolve
from optest.store import write_atomically

_ADAPTERS, _PROGRAMS = "optest.torch.models.adapters:", "optest.torch.models.programs:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """A program with feeds, ready to run; ``vocabulary`` and ``context`` (most tokens) are 0 if unknown."""

    backend: str
    program: ModelProgram
    feeds: Mapping[str, Array]
    notes: Sequence[str] = ()
    vocabulary: int = 0
    context: int = 0


def is_file(name: str) -> bool:
    return name.endswith(".onnx")


def variant_on(backend: str, requested: str | None, usual: str = "") -> str:
    """Return the requested variant of a backend, else ``usual`` if the backend has it, else its default.

    Raises:
        UsageError: for a backend that runs no whole models, or has no such variant.
    """
    if backend == "torch":
        return requested or "eager"
    driver = _onnx_backend(backend)
    known = driver.variants if isinstance(driver, HasVariants) else ()
    if requested and requested.partition("-")[0] not in known:
        expected = f"expected {', '.join(known)}" if known else "expected none: omit --variant"
        raise UsageError(f"backend {backend} has no variant {requested}, {expected}")
    if requested or usual in known:
        return requested or usual
    return known[-1] if known else ""


def _onnx_backend(name: str) -> OnnxBackend:
    """Return the backend of that name; raise UsageError unless it runs ONNX models."""
    driver = backend_manager.get(name)
    if not isinstance(driver, OnnxBackend):
        raise UsageError(
            f"backend {name} runs no whole models, expected torch, onnxruntime, openvino or onnx-reference"
        )
    return driver


def _named_attributes(given: Mapping[str, Any], backend: str) -> dict[str, str]:
    """Return the attributes of model and inputs from the options of a command; raise UsageError if they conflict."""
    what = given["what"]
    if is_file(what) and backend == "torch":
        raise UsageError(
            f"backend torch cannot run {what}, an ONNX file; choose onnxruntime, openvino or onnx-reference"
        )
    if stated := [name for name in ("weights", "preset") if is_file(what) and given[name]]:
        raise UsageError(f"--{stated[0]} applies to named models; the file {what} contains its weights")
    paths = {name: str(Path(given[name]).absolute()) if given.get(name) else "" for name in ("weights", "inputs")}
    return {"model": what, "config": ",".join(given["config"]), "preset": given["preset"] or "", **paths}


def named_model(given: Mapping[str, Any]) -> Any:
    """Return the torch model that a command names, with weights from a file or drawn.

    Raises:
        UsageError, Unavailable: as :func:`optest.torch.models.adapters.open_model`.
    """
    return _torch_model(_named_attributes(given, "torch"), given["seed"])


def _torch_model(stated: Mapping[str, str], seed: int) -> Any:
    return load_object(f"{_ADAPTERS}open_model")(
        stated["model"],
        config=dict(_entries(stated["config"])),
        preset=stated["preset"],
        weights=Path(stated["weights"]) if stated["weights"] else None,
        seed=seed,
    )


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of ``KEY=VALUE,…``; commas within brackets separate items. UsageError without ``=``."""
    for entry in re.split(r",(?![^\[]*\])", text):  # not at commas inside a list
        name, equals, value = entry.partition("=")
        if entry and not equals:
            raise UsageError(f"--config is {entry!r}, expected KEY=VALUE")
        if entry:
            yield name, json_or_text(value)


def _feeds_of(model: Any, inputs: str, seed: int) -> dict[str, Array]:
    drawn: dict[str, Array] = load_object(f"{_PROGRAMS}inputs_of")(model, seed)
    return read_tensors(Path(inputs), [*drawn]) if inputs else drawn


def runnable(given: Mapping[str, Any], *, batch: int = 0, tokens: int = 0, room: int = 0, threads: int = 0) -> Runnable:
    """Open the model ``what`` on ``backend`` by ``variant``, with ``inputs`` from a file or drawn by ``seed``.

    ``batch`` and ``tokens`` are input sizes, 0 for the model's default; ``room`` adds tokens to an exported model,
    whose number of tokens is fixed. ``threads`` 0 is the backend's default.

    Raises:
        UsageError, Unavailable, Fault: for a model that cannot be opened, or exported for the backend.
    """
    backend = given["backend"] or ("onnxruntime" if is_file(given["what"]) else "torch")
    variant, stated = variant_on(backend, given["variant"]), _named_attributes(given, backend)
    if threads and backend != "torch":
        _onnx_backend(backend).use_threads(threads)
    on = f"{backend}:{variant}".rstrip(":")
    if is_file(given["what"]):
        subject = subject_of_file(stated["model"], stated["inputs"], stated["config"], given["seed"])
        program = program_for(subject, backend, variant)
        feeds = {name: _resize_feed(value, batch, tokens) for name, value in subject.feeds.items()}
        for name, _, sizes in program.specs():
            if any(isinstance(size, int) and size != now for size, now in zip(sizes, feeds[name].shape, strict=True)):
                raise UsageError(f"{name} of {given['what']} has the fixed sizes {sizes}; omit --batch and token sizes")
        return Runnable(backend=on, program=program, feeds=feeds)
    model = _torch_model(stated, given["seed"])
    if tokens and not model.causal:
        raise UsageError(f"{given['what']} is not a causal language model, so it accepts no number of tokens")
    if tokens > model.context > 0:
        raise UsageError(
            f"{tokens} tokens do not fit into the {model.context} positions of {given['what']}; see --config"
        )
    longest = min(tokens + room, model.context or tokens + room) if backend != "torch" else tokens
    drawn = _feeds_of(model, stated["inputs"], given["seed"])
    feeds = {name: _resize_feed(value, batch, longest) for name, value in drawn.items()}
    if backend == "torch":
        program = load_object(f"{_PROGRAMS}TorchProgram")(model, feeds, variant, given["torch_device"] or "", threads)
    else:
        graph = Graph(load_object(f"{_PROGRAMS}exported_content")(model, feeds))
        program = program_for(Subject(graph, feeds), backend, variant)
    about = {"notes": model.notes, "vocabulary": model.vocabulary, "context": model.context}
    return Runnable(backend=on, program=program, feeds=feeds, **about)


@lru_cache(maxsize=4)
def program_for(subject: Subject, backend: str, variant: str, device: str = "", optimized: str = "") -> ModelProgram:
    """Return a model on a backend as a program; ``optimized`` is a file that runs in place of an ONNX model."""
    if not isinstance(subject.graph, Graph):
        make: Callable[..., ModelProgram] = load_object(f"{_PROGRAMS}TorchProgram")
        return make(subject.model, subject.feeds, variant, device, graph=subject.graph)
    content = opened_file(Path(optimized)) if optimized else None
    return OnnxProgram(_onnx_backend(backend), subject.graph, variant, content)


def _resize_feed(value: Array, batch: int, tokens: int) -> Array:
    """Repeat or cut ``value`` to ``batch`` rows and, for 2-d integers, ``tokens`` columns; 0 keeps a size."""
    shape = list(value.shape)
    if batch and shape:
        shape[0] = batch
    if tokens and len(shape) == 2 and value.dtype.kind in "iub":
        shape[1] = tokens
    return np.resize(value, shape)


def stated_models(given: Mapping[str, Any], *, every_preset: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a name and the case attributes of the model that a command names, for each or for the first preset.

    For ONNX runtimes, a torch model is exported to a file, next to its inputs and its outputs by torch.

    Raises:
        UsageError: for an unknown name, or a configuration or weights that do not fit.
        Fault: COMPILE if the export fails.
    """
    named = _named_attributes(given, given["backend"])
    if is_file(named["model"]):
        path = Path(named["model"])
        digest = hashlib.blake2b(path.read_bytes() if path.is_file() else b"", digest_size=8).hexdigest()
        file = {"file": path.as_posix(), "inputs": named["inputs"], "sizes": named["config"], "digest": digest}
        yield path.stem, file
        return
    weights = Path(named["weights"]) if named["weights"] else None
    presets = load_object(f"{_ADAPTERS}presets_of")(named["model"], weights)
    for preset in [named["preset"]] if named["preset"] else presets if every_preset else presets[:1]:
        stated = {**named, "preset": preset}
        folder = Path(resolve(given)["runs_dir"]).parent / "models"
        name = "/".join(filter(None, (named["model"].rpartition(":")[2], preset)))
        yield name, stated if given["backend"] == "torch" else _exported(tuple(stated.items()), given["seed"], folder)


@cache
def _exported(key: tuple[tuple[str, str], ...], seed: int, models: Path) -> dict[str, str]:
    """Export a torch model with its inputs and outputs to a folder below ``models``; return the case attributes."""
    named = dict(key)
    model = _torch_model(named, seed)
    feeds = _feeds_of(model, named["inputs"], seed)
    content, outputs = load_object(f"{_PROGRAMS}exported_model")(model, feeds, moved)
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    folder = models / f"{re.sub(r'[^0-9A-Za-z_.]+', '-', named['model'])}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "model.onnx", content)
    save_tensors(feeds, folder / "inputs.safetensors", named["model"])
    save_tensors(outputs, folder / "expected.safetensors", named["model"])
    files = {"file": "model.onnx", "inputs": "inputs.safetensors", "expected": "expected.safetensors"}
    paths = {name: (folder / file).as_posix() for name, file in files.items()}
    return {**paths, "digest": digest, "causal": "yes" * model.causal}


@lru_cache(maxsize=4)
def subject_for(key: tuple[tuple[str, str], ...], seed: int) -> Subject:
    """Open the model and inputs that the case attributes ``key`` describe; the last four are cached."""
    stated = dict(key)
    if stated["file"]:
        return subject_of_file(stated["file"], stated["inputs"], stated["sizes"], seed)
    model = _torch_model(stated, seed)
    feeds = _feeds_of(model, stated["inputs"], seed)
    graph, feeds = load_object(f"{_PROGRAMS}graph_with_feeds")(model, feeds)
    return Subject(graph, feeds, model)
