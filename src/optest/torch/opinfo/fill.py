"""Build samples of OpInfo, torch's operator database, with the same bits each time.

Operator, dtype, number and seed identify a sample, so that no tensor has to be stored. OpInfo is an internal module of
torch, whose samples change with its version: a digest of the bits detects that.
"""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from optest.errors import Unavailable, UsageError
from optest.numerics import Array
from optest.registry import load_object
from optest.spec import Fault, Reason, TensorSpec
from optest.torch.tensors import from_torch

_DATABASE = "torch.testing._internal.common_methods_invocations:op_db"


@lru_cache(maxsize=1)
def database() -> Mapping[str, Any]:
    """Return OpInfo objects by full name, such as ``softmax.with_dtype``; raise Unavailable if torch has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            infos = load_object(_DATABASE)
        except Unavailable as error:
            raise Unavailable(f"OpInfo of torch {torch.__version__}", error.remedy) from None
        except UsageError:
            raise Unavailable(
                "OpInfo", f"torch {torch.__version__} has no {_DATABASE}; a build from PyPI or pytorch.org has it"
            ) from None
    return {info.full_name: info for info in infos}


# The cases of one operator and dtype need the same samples one after another.
@lru_cache(maxsize=2)
def samples_of(operator: str, dtype: str, seed: int) -> tuple[Any, ...]:
    """Return the SampleInput objects of one operator, on the CPU; raise ``Fault`` BAD_CASE for an unknown operator."""
    info = _info_of(operator)
    with _seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Not by `sample_inputs`, which would ignore this seed and seed torch before each sample itself.
        return tuple(info.sample_inputs_func(info, "cpu", getattr(torch, dtype), requires_grad=False))


@lru_cache(maxsize=2)
def errors_of(operator: str, seed: int) -> tuple[Any, ...]:
    """Return the ErrorInput objects of one operator, on the CPU: invalid samples, each with its expected error."""
    info = _info_of(operator)
    if info.error_inputs_func is None:
        return ()
    with _seeded(seed), _filled_memory(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(info.error_inputs_func(info, "cpu"))


@contextmanager
def _filled_memory() -> Iterator[None]:
    """Fill uninitialised memory of torch within the block: some error inputs consist of it."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = filled


def _info_of(operator: str) -> Any:
    """Return the OpInfo object of that full name; raise ``Fault`` BAD_CASE for an unknown one."""
    info = database().get(operator)
    if info is None:
        raise Fault(Reason.BAD_CASE, f"OpInfo of torch {torch.__version__} has no operator {operator!r}")
    return info


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch, NumPy and Python within the block, and restore their random states afterwards."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        random.seed(seed)
        # NumPy accepts seeds of 32 bits.
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def tensors_of(sample: Any) -> list[torch.Tensor]:
    """Return the tensors of a sample in the order of the call, each once."""
    tensors: dict[int, torch.Tensor] = {}

    def gather(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            tensors.setdefault(id(value), value)
        elif isinstance(value, (list, tuple, slice)):
            for item in (value.start, value.stop, value.step) if isinstance(value, slice) else value:
                gather(item)

    for argument in (sample.input, *sample.args, *sample.kwargs.values()):
        gather(argument)
    return list(tensors.values())


def array_of(tensor: torch.Tensor) -> Array:
    """Return the elements of a strided tensor as a dense array; raise KeyError for a dtype unknown to optest."""
    return from_torch(tensor.contiguous())


def digest_of(array: Array) -> str:
    """Return 16 hexadecimal digits: a hash of an array's bits, dtype and shape."""
    text = f"{array.dtype}{list(array.shape)}".encode()
    return hashlib.blake2b(text + np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()


def from_sample(parameters: Mapping[str, Any], spec: TensorSpec, name: str, seed: int, origin: str) -> Array:
    """Return the dense tensor that a fill's parameters identify; ``Fault`` BAD_CASE if it is missing or changed."""
    operator, dtype, number = parameters["op"], parameters["dtype"], parameters["sample"]
    if parameters["of"] == "errors":
        samples, word = tuple(error.sample_input for error in errors_of(operator, seed)), "error input"
    else:
        samples, word = samples_of(operator, dtype, seed), "sample"
    title = f"{word} {number} of {operator}[{dtype}]"
    if number >= len(samples):
        raise Fault(Reason.BAD_CASE, f"OpInfo of torch {torch.__version__} has no {title}, only {len(samples)}")
    tensors = tensors_of(samples[number])
    if parameters["tensor"] < len(tensors):
        array = array_of(tensors[parameters["tensor"]])
        if array.shape == spec.shape and digest_of(array) == parameters["digest"]:
            return array
    raise Fault(
        Reason.BAD_CASE,
        f"{name} is from {title} with seed {seed}, whose values differ from those of the case"
        f"{f' from {origin}' if origin else ''}; this is torch {torch.__version__}: collect the cases again",
    )
