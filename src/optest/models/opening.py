"""A model by its name or file, on a backend, with inputs: what the commands run that compare nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.errors import UsageError
from optest.generators.files import read_tensors
from optest.models.driver import backend_called, variant_of
from optest.models.hooks import Program
from optest.models.subjects import onnx_subject
from optest.numerics import Array
from optest.onnx.whole_models import OnnxProgram
from optest.registry import load_object

__all__ = ["Opened", "config_of", "is_file", "opened", "torch_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A program with feeds. Of a language model ``vocabulary`` and ``context`` may be known, 0 where they are not."""

    who: str
    program: Program
    feeds: Mapping[str, Array]
    notes: Sequence[str] = ()
    vocabulary: int = 0
    context: int = 0
    threads: Any = None
    """Sets the number of threads; before a program is loaded."""


def opened(given: Mapping[str, Any], **sizes: int) -> Opened:
    """The model ``what`` on ``backend`` by ``variant``; ``sizes`` over those of ``config``.

    Raises:
        UsageError, Unavailable, Fault: for whatever cannot be opened, or exported for the backend.
    """
    config = {**config_of(given["config"]), **sizes}
    if is_file(given["what"]):
        return _opened_file(given, config)
    model = torch_model(given, config)
    inputs = model.inputs(given["seed"])
    if given["input"]:
        inputs = _given_inputs(Path(given["input"]), inputs)
    about = {"notes": model.notes, "vocabulary": model.vocabulary, "context": model.context}
    backend = given["backend"] or "torch"
    if backend == "torch":
        program = load_object("optest.torch.models.programs:TorchProgram")(model, given["variant"] or "eager", inputs)
        return Opened(who=f"torch:{program.variant}", program=program, feeds=program.feeds, **about)
    driver = backend_called(backend)
    if given["threads"]:
        driver.use_threads(given["threads"])
    variant = variant_of(driver, given["variant"])
    exported = load_object("optest.torch.models.graphs:exported")(model, inputs)
