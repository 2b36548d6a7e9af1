"""Custom generators: found by their path, with a NumPy Generator that depends on the case key."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from texts import refusal

from optest.errors import UsageError
from optest.generators import RandomTensorGenerator, numpy_generator, resolve_generator
from optest.spec import OperatorDescriptor, TestCase

CASE = TestCase(descriptor=OperatorDescriptor(name="op"), inputs=())


class Constant:
    def generate(self, case: TestCase, rng: np.random.Generator) -> tuple[list[np.ndarray], None]:
        return [rng.standard_normal(3)], None


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("generators_of_a_user")
    made.Constant = Constant
    made.instance = Constant()
    made.function = lambda case, rng: ([rng.standard_normal(3)], None)
    made.number = 3
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


@pytest.mark.parametrize("name", ["Constant", "instance", "function"])
def test_class_instance_and_function(module: types.ModuleType, name: str) -> None:
    generator = resolve_generator(f"{module.__name__}:{name}")
    (array,), expected = generator.generate(CASE, numpy_generator(CASE))
    assert array.shape == (3,)
    assert expected is None


def test_none_is_the_built_in() -> None:
    assert isinstance(resolve_generator(None), RandomTensorGenerator)


def test_what_is_no_generator(module: types.ModuleType) -> None:
    with refusal(UsageError, "generators.is_int_but_should"):
        resolve_generator(f"{module.__name__}:number")
    with refusal(UsageError, "generators.did_you_mean_function"):
        resolve_generator(f"{module.__name__}:funktion")


def test_the_numpy_generator_depends_on_the_key() -> None:
    first = numpy_generator(CASE).integers(2**60, size=4)
    assert (first == numpy_generator(CASE).integers(2**60, size=4)).all()
    other = TestCase(descriptor=CASE.descriptor, inputs=(), seed=1)
    assert not (first == numpy_generator(other).integers(2**60, size=4)).any()
