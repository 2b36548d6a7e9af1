"""Cases of whole models: a model's outputs on a backend, or one value inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.backends.command_abilities import HasVariants
from optest.backends.whole_models import ModelProgram, Region
from optest.errors import UsageError
from optest.models.opened import opened
from optest.models.subjects import Subject, judged_by_accuracy, read_tensors
from optest.numerics import Array
from optest.onnx.driver import OnnxBackend
from optest.onnx.graphs import Graph, opened_file
from optest.onnx.whole_models import OnnxProgram
from optest.registry import load_object
from optest.spec import Attribute, Check, CheckState, NamedOutput, OperatorDescriptor, Rule, RuleClass, TestCase
from optest.store.paths import path_of

__all__ = [
    "CATEGORY",
    "PREFIX",
    "ModelDriver",
    "ModelValues",
    "descriptor_of",
    "onnx_backend",
    "program_of",
    "subject_of",
]

PREFIX = "model."
CATEGORY = "model"
_MODEL = ("model", "config", "preset", "weights", "file", "inputs", "sizes")
_FILES = ("weights", "file", "inputs", "expected", "optimized")
_STATED = (
    *_MODEL,
    "expected",
    "digest",
    "causal",
    "optimized",
    "backend",
    "variant",
    "device",
    "part",
    "values",
    "given",
)


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """The descriptor of a model.

    ``part`` is what a case is about: ``outputs``, ``continuation`` (of a causal model, greedily), ``isolated``
    (``values`` of ``given`` ones), ``accumulated`` (values of the model's inputs) or ``watched`` (whether the model
    answers the same where its values are looked at). ``values`` and ``given`` are names, a line each.
    """
    return OperatorDescriptor(
        name=name,
        category=CATEGORY,
        signature=" -> *out",
        attributes=tuple(Attribute(name=each, type="str", default="") for each in _STATED),
    )


def _stated(case: TestCase) -> dict[str, str]:
    """What a case states, with paths from its own folder."""
    stated = {name: case.attributes.get(name, "") for name in _STATED}
    return {name: str(path_of(case, text)) if name in _FILES and text else text for name, text in stated.items()}


def subject_of(case: TestCase) -> Subject:
    """The model with its inputs."""
    return _subject(_stated(case), case.seed)


def program_of(case: TestCase) -> ModelProgram:
    """The model on the backend that the case names."""
    stated = _stated(case)
    return _program_of(_subject(stated, case.seed), stated)


def _subject(stated: Mapping[str, str], seed: int | None) -> Subject:
    return opened(tuple((name, stated[name]) for name in _MODEL), seed or 0)


def _program_of(subject: Subject, stated: Mapping[str, str]) -> ModelProgram:
    return _program(subject, *(stated[name] for name in ("backend", "variant", "device", "optimized")))


@lru_cache(maxsize=4)
def _program(subject: Subject, backend: str, variant: str, device: str, optimized: str) -> ModelProgram:
    if not isinstance(subject.graph, Graph):
        make = load_object("optest.torch.models.programs:TorchProgram")
        program: ModelProgram = make(subject.model, subject.graph, variant, device or "cpu")
        return program
    content = opened_file(Path(optimized)) if optimized else None
    return OnnxProgram(onnx_backend(backend), subject.graph, variant, content)


def onnx_backend(name: str) -> OnnxBackend:
    """
    Raises:
        UsageError: for one that runs no models of ONNX.
    """
    driver = backend_manager.get(name)
    if not isinstance(driver, OnnxBackend):
        raise UsageError(f"backend {name} runs no whole models; torch, onnxruntime, openvino and onnx-reference do")
    return driver


def variant_of(driver: OnnxBackend, stated: str | None) -> str:
    """
    Raises:
        UsageError: for one that the backend does not have.
    """
    known = driver.variants if isinstance(driver, HasVariants) else ("",)
    if stated and stated.partition("-")[0] not in known:
        raise UsageError(f"backend {driver.name} has no variant {stated}, but {', '.join(known)}")
    return stated or known[-1]


class ModelValues:
    """The generator of what a model's values should be; what they are made of the driver takes from the model."""

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[NamedOutput]]:  # noqa: ARG002
        stated = _stated(case)
        subject = _subject(stated, case.seed)
        match stated["part"]:
            case "watched":
                real = _program_of(subject, stated).outputs(subject.feeds)
                exact = Rule(kind=RuleClass.EXACT, stands=True)
                return (), [NamedOutput(name, value, rule=exact) for name, value in real.items()]
            case "continuation":
                return (), [subject.continuation.expected]
            case "outputs" if stated["expected"]:
                return (), _kept(Path(stated["expected"]), _lines(stated["values"]))
            case _:
                return (), subject.expected(_lines(stated["values"]), _lines(stated["given"]))


def _kept(path: Path, names: Sequence[str]) -> list[NamedOutput]:
    kept = read_tensors(path, [f"{name}{suffix}" for name in names for suffix in ("", ".float64", ".moved")])
    return [judged_by_accuracy(name, kept[name], kept[f"{name}.float64"], kept[f"{name}.moved"]) for name in names]


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")) if text else ()


class ModelDriver(BackendDriver):
    """Asks the backend that a case names."""

    name = "model"
    kind = "model"

    def __init__(self) -> None:
        self._agreement = ""

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Array]:  # noqa: ARG002 - they are the model's own
        made = values_of(case)
        self._agreement = ""
        if case.attributes.get("part") == "continuation":
            wanted = subject_of(case).continuation.expected.value.values
            same = np.argmax(made[0], axis=-1) == np.argmax(wanted, axis=-1)
            self._agreement = f"{int(same.sum())} of {same.size} greedy tokens are those of float64"
        return made

    def checks(self, case: TestCase) -> Sequence[Check]:  # noqa: ARG002
        if not self._agreement:
            return ()
        return (Check(name="greedy tokens", state=CheckState.NOTE, detail=self._agreement),)


def values_of(case: TestCase) -> list[Array]:
    """What the backend makes of the part of a model that a case is about."""
    stated = _stated(case)
    subject = _subject(stated, case.seed)
    program = _program_of(subject, stated)
    outputs, given = _lines(stated["values"]), _lines(stated["given"])
    match stated["part"]:
        case "outputs":
            return [*program.outputs(subject.feeds).values()]
        case "continuation":
            feeds, positions, _ = subject.continuation
            made = [next(iter(program.outputs(each).values())) for each in feeds]
            return [np.stack([each[..., place, :] for each, place in zip(made, positions, strict=True)])]
        case "isolated":
            region = Region(given, outputs, program.graph.region(outputs, given).nodes)
            return [*program.made(region, {name: subject.activation(name) for name in given}).values()]
        case _:
            return [*program.watched(outputs or subject.graph.outputs, subject.feeds).values()]
