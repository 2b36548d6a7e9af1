"""Generator and driver of model cases: a model's outputs on a backend, or a value inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.whole_models import ModelGraph, ModelProgram, Region
from optest.models.opened import program_for, subject_for
from optest.models.subjects import Subject, accuracy_output, read_tensors, require_elements
from optest.numerics import Array, bits
from optest.spec import (
    Attribute,
    Check,
    CheckState,
    Fault,
    NamedOutput,
    OperatorDescriptor,
    Reason,
    Rule,
    RuleClass,
    TestCase,
)
from optest.store import path_of

PREFIX = "model."
_MODEL = ("model", "config", "preset", "weights", "file", "inputs", "sizes")
_PROGRAM = ("backend", "variant", "device", "optimized")
_FILES = ("weights", "file", "inputs", "expected", "optimized")
_STATED = (*_MODEL, *_PROGRAM, "expected", "digest", "causal", "part", "values", "given")


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """Return the descriptor of a model.

    ``part`` is the subject of a case: ``outputs``, ``continuation`` (greedy, of a causal model), ``isolated``
    (``values`` computed from ``given``), ``accumulated`` (``values`` computed from the model's inputs) or ``watched``
    (traced nodes compute the same bits as the model). ``values`` and ``given`` are names, one a line.
    """
    return OperatorDescriptor(
        name=name,
        category=PREFIX[:-1],
        signature=" -> *out",
        attributes=tuple(Attribute(name=each, type="str", default="") for each in _STATED),
    )


def _stated(case: TestCase) -> dict[str, str]:
    """Return all attributes of a case, "" for those not set, with paths relative to the case's folder resolved."""
    stated = {**dict.fromkeys(_STATED, ""), **case.attributes}
    return stated | {name: str(path_of(case, stated[name])) for name in _FILES if stated[name]}


def subject_of(case: TestCase, stated: Mapping[str, str] | None = None) -> Subject:
    """Return the model of a case with its inputs."""
    stated = stated or _stated(case)
    return subject_for(tuple((name, stated[name]) for name in _MODEL), case.seed or 0)


def program_of(case: TestCase, stated: Mapping[str, str] | None = None) -> ModelProgram:
    """Return the model of a case on its backend."""
    stated = stated or _stated(case)
    return program_for(subject_of(case, stated), *(stated[name] for name in _PROGRAM))


def tensor_outputs(graph: ModelGraph) -> list[str]:
    """Return the outputs of a model that are tensors of numbers: no sequences, maps or strings."""
    return [each for each in graph.outputs if each not in graph.node_of_value or graph.dtype_name(each)]


class ModelValues:
    """Generator of the expected values of a model case; the driver takes the inputs from the model."""

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[NamedOutput]]:  # noqa: ARG002
        stated = _stated(case)
        subject = subject_of(case, stated)
        match stated["part"]:
            case "watched":
                program = program_of(case, stated)
                subject.require_reference([name for region in program.regions for name in region.outputs])
                real = _tensor_values(subject, program.whole_outputs(subject.feeds))
                require_elements(real)
                doubt = (
                    "outputs of the session with one thread; a difference casts doubt on the trace, not on the model"
                )
                exact = Rule(kind=RuleClass.EXACT, formula=doubt, fixed=True)
                return (), [NamedOutput(name, value, rule=exact) for name, value in real.items()]
            case "continuation":
                return (), [subject.continuation.expected]
            case "outputs" if not stated["values"]:
                listed = ", ".join(subject.graph.outputs)
                raise Fault(Reason.UNSUPPORTED, f"no output of the model is a tensor of numbers; its outputs: {listed}")
            case "outputs" if stated["expected"]:
                names, ends = _names_in(stated["values"]), ("", ".float64", ".moved")
                kept = read_tensors(Path(stated["expected"]), [name + end for name in names for end in ends])
                return (), [accuracy_output(name, *(kept[name + end] for end in ends)) for name in names]
            case "accumulated":
                traced = [name for region in program_of(case, stated).regions for name in region.outputs]
                return (), subject.expected(_names_in(stated["values"]), among=traced)
            case _:
                return (), subject.expected(_names_in(stated["values"]), _names_in(stated["given"]))


def _tensor_values(subject: Subject, outputs: Mapping[str, Any]) -> dict[str, Array]:
    by_value = dict(zip(subject.graph.outputs, outputs.values(), strict=True))
    return {name: by_value[name] for name in tensor_outputs(subject.graph)}


def _names_in(text: str) -> tuple[str, ...]:
    """Return the names in a text with one name per line; () for ""."""
    return tuple(text.split("\n")) if text else ()


class ModelDriver(BackendDriver):
    """Driver that runs a model case on the backend that the case names."""

    name = "model"
    kind = "model"
    reads_inputs = False

    def __init__(self) -> None:
        self._agreement = ""

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Array]:  # noqa: ARG002 - the model has its inputs
        outputs = values_of(case)
        self._agreement = ""
        if case.attributes.get("part") == "continuation":
            wanted = subject_of(case).continuation.expected.value.values
            same = np.argmax(outputs[0], axis=-1) == np.argmax(wanted, axis=-1)
            self._agreement = f"{int(same.sum())} of {same.size} greedy tokens equal those of float64"
        if case.attributes.get("part") == "watched":
            subject = subject_of(case)
            real = _tensor_values(subject, program_of(case).outputs(subject.feeds)).values()
            if differing := sum(int(np.count_nonzero(bits(a) != bits(b))) for a, b in zip(outputs, real, strict=True)):
                self._agreement = f"{differing} output elements differ in bits between all threads and one thread"
        return outputs

    def checks(self, case: TestCase) -> Sequence[Check]:
        if not self._agreement:
            return ()
        name = "greedy tokens" if case.attributes.get("part") == "continuation" else "threads"
        return (Check(name=name, state=CheckState.NOTE, detail=self._agreement),)


def values_of(case: TestCase) -> list[Array]:
    """Return the values that the backend computes for the part of the model that the case tests."""
    stated = _stated(case)
    subject, program = subject_of(case, stated), program_of(case, stated)
    outputs, given = _names_in(stated["values"]), _names_in(stated["given"])
    match stated["part"]:
        case "outputs":
            program.outputs(subject.feeds)  # only the second call shows state that a first call leaves behind
            return [*_tensor_values(subject, program.outputs(subject.feeds)).values()]
        case "continuation":
            feeds, positions, _ = subject.continuation
            logits = [next(iter(program.outputs(step).values())) for step in feeds]
            return [np.stack([x[..., position, :] for x, position in zip(logits, positions, strict=True)])]
        case "isolated":
            region = Region(given, outputs, program.graph.region(outputs, given).nodes)
            return [*program.run_region(region, {name: subject.activation(name) for name in given}).values()]
        case _:
            return [*program.inner_values(outputs or tensor_outputs(subject.graph), subject.feeds).values()]
