"""Cases of whole models: a model's outputs on a backend, or one value inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from optest.backends import BackendDriver, backend_manager
from optest.backends.abilities import HasVariants
from optest.errors import UsageError
from optest.models.subjects import OnnxSubject, onnx_subject
from optest.numerics import Array
from optest.onnx.driver import OnnxBackend
from optest.onnx.graphs import Region, opened_file
from optest.onnx.whole_models import OnnxProgram
from optest.spec import Attribute, NamedOutput, OperatorDescriptor, Rule, RuleClass, TestCase
from optest.store.paths import path_of

__all__ = ["CATEGORY", "PREFIX", "ModelDriver", "ModelValues", "descriptor_of", "program_of", "subject_of"]

PREFIX = "model."
CATEGORY = "model"
_STRINGS = ("file", "digest", "inputs", "sizes", "optimized", "backend", "variant", "part")


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """The descriptor of a model.

    ``part`` is what a case is about: ``outputs``, ``isolated`` (``values`` of ``given`` ones), ``accumulated`` (values
    of the model's inputs) or ``watched`` (whether the model answers the same where its values are looked at).
    ``values`` and ``given`` are names, a line each.
    """
    return OperatorDescriptor(
        name=name,
        category=CATEGORY,
        signature=" -> *out",
        attributes=(
            *(Attribute(name=each, type="str", default="") for each in _STRINGS),
            *(Attribute(name=each, type="str", default="") for each in ("values", "given")),
        ),
    )


def subject_of(case: TestCase) -> OnnxSubject:
    stated = case.attributes
    inputs = _path(case, stated["inputs"])
    return onnx_subject(_path(case, stated["file"]), inputs, stated["sizes"], case.seed or 0)


def _path(case: TestCase, text: str) -> str:
    return str(path_of(case, text)) if text else ""


def program_of(case: TestCase) -> OnnxProgram:
    """The model on the backend that the case names."""
    stated = case.attributes
    return _program(subject_of(case), stated["backend"], stated["variant"], _path(case, stated["optimized"]))


@lru_cache(maxsize=4)
def _program(subject: OnnxSubject, backend: str, variant: str, optimized: str) -> OnnxProgram:
    content = opened_file(Path(optimized)) if optimized else None
    return OnnxProgram(backend_called(backend), subject.graph, variant, content)


def backend_called(name: str) -> OnnxBackend:
    """
    Raises:
        UsageError: for one that runs no models of ONNX.
    """
    driver = backend_manager.get(name)
    if not isinstance(driver, OnnxBackend):
        raise UsageError(f"backend {name} runs no ONNX models")
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
        subject, stated = subject_of(case), case.attributes
        if stated["part"] == "watched":
            real = program_of(case).outputs(subject.feeds)
            exact = Rule(kind=RuleClass.EXACT, stands=True)
            return (), [NamedOutput(name, value, rule=exact) for name, value in real.items()]
        return (), subject.expected(_lines(stated["values"]), _lines(stated["given"]))


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")) if text else ()


class ModelDriver(BackendDriver):
    """Asks the backend that a case names."""

    name = "model"
    kind = "model"

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Array]:  # noqa: ARG002
        return [*self._values(case).values()]

    def _values(self, case: TestCase) -> Mapping[str, Array]:
        program, subject, stated = program_of(case), subject_of(case), case.attributes
        outputs = _lines(stated["values"])
        if stated["part"] == "outputs":
            return program.outputs(subject.feeds)
        if stated["part"] == "isolated":
            given = _lines(stated["given"])
            region = Region(given, outputs, program.graph.region(outputs, given).nodes)
            return program.made(region, {name: subject.activation(name) for name in given})
        return program.watched(outputs or subject.graph.outputs, subject.feeds)
