"""Files with the tensors of an execution, for ``optest replay --save``: ``.npz`` archives that NumPy can read.

docs/reports.md describes the format. Elements of a type that NumPy lacks are saved as unsigned integers with their
bits, under a name that ends with the type: ``input0.bfloat16``. A tensor that is not dense is saved as its
one-dimensional storage with the elements between: ``input0.storage``. The entry ``meta`` is JSON with dtype, shape,
strides and offset of each tensor.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import WritesOutputs
from optest.core.actual import outputs_in_order
from optest.core.expected import expected_outputs, make_inputs
from optest.core.phases import Phase
from optest.core.wire import case_to_wire
from optest.errors import UsageError
from optest.numerics import bits, dtype_of, numpy_dtype, widen
from optest.numerics.layout import storage_of, view
from optest.spec import Fault, TensorSpec, TestCase, contiguous_strides, dtype

Array = np.ndarray[Any, Any]
SCHEMA_VERSION = 1


def inputs_path(folder: Path, case: TestCase) -> Path:
    """Return the path of the archive with the inputs and expected outputs of a case."""
    return folder / f"{_file_name(case)}.npz"


def outputs_path(folder: Path, case: TestCase) -> Path:
    """Return the path of the archive with the outputs that the backend returned for a case."""
    return folder / f"{_file_name(case)}.actual.npz"


def _file_name(case: TestCase) -> str:
    """Return a file name that identifies a case's inputs, reference and backend configuration."""
    # cases with one key have the same inputs, but may differ in what else the backend gets
    config = repr((case.backend_config, case.reference, case.base_dir))
    return f"{case.key.removeprefix('k1:')}-{hashlib.blake2b(config.encode(), digest_size=4).hexdigest()}"


@contextmanager
def tensors_kept(
    case: TestCase, driver: BackendDriver, folder: Path, announce: Callable[[Phase], None]
) -> Iterator[None]:
    """Save inputs and expected outputs of the case to ``folder``; within the block, save the driver's outputs, too.

    The methods `run` and `run_into` of the driver object (not of its class) are replaced within the block. Inputs and
    expected outputs are computed here once more, and are on disk before the backend runs, whatever it does.
    """
    with suppress(Fault):  # the execution computes the same and reports it as its verdict
        _keep_before(case, driver, folder, announce)
    announce(Phase.IDLE)
    outputs_path(folder, case).unlink(missing_ok=True)
    key, run = case.key, driver.run
    run_into = driver.run_into if isinstance(driver, WritesOutputs) else None
    names = ("run",) if run_into is None else ("run", "run_into")

    def run_and_keep(case: TestCase, inputs: Sequence[Any]) -> Any:
        returned = run(case, inputs)
        if case.key == key:  # else it is an operator within a layer
            _keep_actual(case, returned, folder)
        return returned

    def run_into_and_keep(case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        assert run_into is not None
        run_into(case, inputs, outputs)
        if case.key == key:
            _keep_actual(case, list(outputs), folder)

    replaced = {name: vars(driver)[name] for name in names if name in vars(driver)}
    vars(driver)["run"] = run_and_keep
    if run_into is not None:
        vars(driver)["run_into"] = run_into_and_keep
    try:
        yield
    finally:
        for name in names:
            vars(driver).pop(name, None)
        vars(driver).update(replaced)


def _keep_before(case: TestCase, driver: BackendDriver, folder: Path, announce: Callable[[Phase], None]) -> None:
    """Write the inputs, then inputs and expected outputs; only the inputs if the case expects an error."""
    announce(Phase.GENERATE)
    inputs, known_outputs = make_inputs(case)
    tensors = {argument.path: array for argument, array in zip(case.inputs, inputs, strict=True)}
    offsets = {argument.path: argument.spec.offset for argument in case.inputs}
    facts = {"id": case.id, "key": case.key, "case": case_to_wire(case)}
    path = inputs_path(folder, case)
    write_archive(path, Archive(tensors=tensors, offsets=offsets, facts=facts))
    if case.expects_error is not None:
        return
    announce(Phase.REFERENCE)
    expected, _ = expected_outputs([case], inputs, known_outputs, driver)
    # Outputs are saved in C order: the strides of a reference's array only show in which order NumPy computed it.
    tensors |= {f"output{index}.expected": np.array(output.value, order="C") for index, output in enumerate(expected)}
    write_archive(path, Archive(tensors=tensors, offsets=offsets, facts=facts))


def _keep_actual(case: TestCase, returned: Any, folder: Path) -> None:
    """Write the outputs of the first call; nothing if ``returned`` is no list of arrays, which the verdict reports."""
    try:
        outputs = outputs_in_order(case, returned)
    except Fault:
        return
    path = outputs_path(folder, case)
    if path.exists():  # a further call, with other inputs of the same shapes
        return
    tensors = {f"output{index}.actual": np.array(output, order="C") for index, output in enumerate(outputs)}
    write_archive(path, Archive(tensors=tensors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Tensors by name (``input0``, ``output0.expected``, ``output0.actual``, ``output0.error``) and facts of the case.

    ``offsets`` are the numbers of elements in an input's storage before its first one, by name.
    """

    tensors: Mapping[str, Array]
    offsets: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def write_archive(path: Path, archive: Archive) -> None:
    """Write an archive to ``path``, by way of a temporary file: a reader never sees a part of it.

    Raises:
        UsageError: if it cannot be written.
    """
    entries: dict[str, Array] = {}
    described: dict[str, Any] = {}
    for name, tensor in archive.tensors.items():
        spec = spec_of(tensor, archive.offsets.get(name, 0))
        described[name] = {"dtype": spec.dtype.name, "shape": list(spec.shape)}
        if not spec.is_dense:
            described[name] |= {"strides": list(spec.strides or ()), "offset": spec.offset}
        stored = tensor if spec.is_dense else storage_of(tensor, spec)
        stored = np.ascontiguousarray(stored).reshape(stored.shape)
        entries[entry_name(name, spec)] = stored if stored.dtype.isbuiltin == 1 else bits(stored)
    meta = {**archive.facts, "schema_version": SCHEMA_VERSION, "tensors": described}
    entries["meta"] = np.array(json.dumps(meta))
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, **entries)  # type: ignore[arg-type]
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def read_archive(path: Path) -> Archive:
    """Read a file of :func:`write_archive`, with equal bits, element types and strides.

    Raises:
        UsageError: if the file cannot be read or is no such archive.
    """
    try:
        with np.load(path) as saved:
            meta = json.loads(str(saved["meta"]))
            specs = {name: _spec_from_meta(tensor) for name, tensor in meta.pop("tensors").items()}
            tensors = {name: _tensor_of_entry(saved[entry_name(name, spec)], spec) for name, spec in specs.items()}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (BadZipFile, KeyError, ValueError) as error:
        raise UsageError(f"{path} is not a file of saved tensors: {error}") from None
    return Archive(tensors=tensors, offsets={name: spec.offset for name, spec in specs.items()}, facts=meta)


def entry_name(name: str, spec: TensorSpec) -> str:
    """Return the name of a tensor's entry: ``input0``, ``input0.bfloat16``, ``input0.storage.bfloat16``."""
    storage = "" if spec.is_dense else ".storage"
    tag = "" if numpy_dtype(spec.dtype).isbuiltin == 1 else f".{spec.dtype.name}"
    return f"{name}{storage}{tag}"


def spec_of(tensor: Array, offset: int = 0) -> TensorSpec:
    """Return dtype, shape and layout of an array; the offset is at least the one that negative strides need."""
    entry = dtype_of(tensor.dtype)
    strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
    if tensor.size == 0 or (not offset and strides == contiguous_strides(tensor.shape)):
        return TensorSpec(dtype=entry, shape=tensor.shape)
    before = -sum(min(0, (size - 1) * stride) for size, stride in zip(tensor.shape, strides, strict=True))
    return TensorSpec(dtype=entry, shape=tensor.shape, strides=strides, offset=max(offset, before))


def element_error(actual: Array, expected: Array) -> Array | None:
    """Return ``|actual - expected|`` of every element as float64; None if the shapes differ.

    Equal infinities and two NaN have the error 0.
    """
    if actual.shape != expected.shape:
        return None
    wide = (widen(np.ascontiguousarray(array)) for array in (actual, expected))
    left, right = (array if array.dtype.kind in "fc" else array.astype(np.float64) for array in wide)
    with np.errstate(all="ignore"):
        error = np.abs(left - right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    # `ascontiguousarray` gives a scalar one dimension
    errors: Array = np.asarray(np.where(same, 0.0, error), dtype=np.float64).reshape(actual.shape)
    return errors


def _spec_from_meta(tensor: Mapping[str, Any]) -> TensorSpec:
    strides: Sequence[int] | None = tensor.get("strides")
    return TensorSpec(
        dtype=dtype(tensor["dtype"]),
        shape=tuple(tensor["shape"]),
        strides=None if strides is None else tuple(strides),
        offset=tensor.get("offset", 0),
    )


def _tensor_of_entry(stored: Array, spec: TensorSpec) -> Array:
    """Return the tensor of an archive's entry in its own dtype, shape and strides."""
    elements = stored if stored.dtype == numpy_dtype(spec.dtype) else stored.view(numpy_dtype(spec.dtype))
    return elements.reshape(spec.shape) if spec.is_dense else view(elements, spec)
