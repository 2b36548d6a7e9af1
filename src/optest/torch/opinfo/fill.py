"""Samples of torch's own OpInfo database, made again wherever their values are needed: the same bits each time.

A sample is found by operator, dtype, number and seed, so that no tensor has to be stored. What torch draws while it
makes samples comes from generators that are put back afterwards. The module behind this is torch's internal one, whose
samples change with its version: a digest of the bits tells so.
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
    """Torch's OpInfo objects by their full names: ``add``, ``softmax.with_dtype``, ``nn.functional.conv2d``.

    Raises:
        Unavailable: if this torch has no such database, or what it needs is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = load_object(_DATABASE)
        except Unavailable as error:
            raise Unavailable(f"OpInfo of torch {torch.__version__}", error.remedy) from None
        except UsageError:
            raise Unavailable(
                "OpInfo", f"torch {torch.__version__} has no {_DATABASE}; a build from PyPI or pytorch.org has it"
            ) from None
    return {each.full_name: each for each in found}


@lru_cache(maxsize=2)
def samples_of(operator: str, dtype: str, seed: int) -> tuple[Any, ...]:
    """The SampleInput objects of one operator, on the CPU.

    Raises:
        Fault: BAD_CASE if this torch has no such operator.
    """
    info = _info_of(operator)
    with _seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Not through `sample_inputs`, which would seed torch before each sample, whatever the seed is here.
        return tuple(info.sample_inputs_func(info, "cpu", getattr(torch, dtype), requires_grad=False))


@lru_cache(maxsize=2)
def errors_of(operator: str, seed: int) -> tuple[Any, ...]:
    """The ErrorInput objects of one operator, on the CPU: samples with the error that each has to be refused with.

    Raises:
        Fault: BAD_CASE if this torch has no such operator.
    """
    info = _info_of(operator)
    if info.error_inputs_func is None:
        return ()
    with _seeded(seed), _memory_filled(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(info.error_inputs_func(info, "cpu"))


@contextmanager
def _memory_filled() -> Iterator[None]:
    """Memory that nobody has written to holds the same in every process: some error inputs are made of it."""
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
    info = database().get(operator)
    if info is None:
        raise Fault(Reason.BAD_CASE, f"OpInfo of torch {torch.__version__} has no operator {operator!r}")
    return info


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Torch, NumPy and Python draw from ``seed`` within, and go on as before afterwards."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def tensors_of(sample: Any) -> list[torch.Tensor]:
    """The tensors of a sample in the order of the call; one that stands there twice is there once."""
    found: dict[int, torch.Tensor] = {}
    for value in (sample.input, *sample.args, *sample.kwargs.values()):
        _gather(value, found)
    return list(found.values())


def _gather(value: Any, found: dict[int, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.setdefault(id(value), value)
    elif isinstance(value, (list, tuple, slice)):
        for each in (value.start, value.stop, value.step) if isinstance(value, slice) else value:
            _gather(each, found)


def array_of(tensor: torch.Tensor) -> Array:
    """The elements of a strided tensor, dense.

    Raises:
        KeyError: for a dtype that optest does not know.
    """
    return from_torch(tensor.contiguous())


def digest_of(array: Array) -> str:
    """Sixteen hexadecimal digits for the bits of an array and its shape."""
    text = f"{array.dtype}{list(array.shape)}".encode()
    return hashlib.blake2b(text + np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()


def from_sample(stated: Mapping[str, Any], spec: TensorSpec, name: str, seed: int, where: str) -> Array:
    """The tensor that the parameters of the fill ``opinfo`` name, dense; ``where`` is where the case came from.

    Raises:
        Fault: BAD_CASE if this torch has no such sample, or one with other values than the case was made with.
    """
    operator, dtype, number = stated["op"], stated["dtype"], stated["sample"]
    if stated["of"] == "errors":
        samples, word = tuple(each.sample_input for each in errors_of(operator, seed)), "error input"
    else:
        samples, word = samples_of(operator, dtype, seed), "sample"
    title = f"{word} {number} of {operator}[{dtype}]"
    if number >= len(samples):
        raise Fault(Reason.BAD_CASE, f"OpInfo of torch {torch.__version__} has no {title}, {len(samples)} only")
    tensors = tensors_of(samples[number])
    if stated["tensor"] < len(tensors):
        array = array_of(tensors[stated["tensor"]])
        if array.shape == spec.shape and digest_of(array) == stated["digest"]:
            return array
    raise Fault(
        Reason.BAD_CASE,
        f"{name} is of {title} with seed {seed}, whose values are others now than when the case was made"
        f"{f' from {where}' if where else ''}; this is torch {torch.__version__}",
    )
