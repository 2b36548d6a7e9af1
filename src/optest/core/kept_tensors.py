"""The tensors of an execution, kept where they are made for ``optest replay --save``: a ``.npz`` that NumPy alone can
read, which docs/reports.md describes for users.

Inputs and expected outputs are on disk before the backend is asked, so that they survive whatever it does. Elements
of a type that NumPy lacks are saved as unsigned integers of their bits, and the entry's name ends with the type:
``input0.bfloat16``. A tensor that is not dense is saved by its one-dimensional storage, gaps included:
``input0.storage``. The entry ``meta`` is JSON with dtype, shape, strides and offset of each tensor.
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
from optest.core.actual import in_order
from optest.core.expected import expected_outputs
from optest.core.inputs import make_inputs
from optest.core.phases import Phase
from optest.core.wire import case_to_wire
from optest.errors import UsageError
from optest.numerics import bits, dtype_of, numpy_dtype, widen
from optest.numerics.layout import storage_of, view
from optest.spec import Fault, TensorSpec, TestCase, contiguous_strides, dtype

Array = np.ndarray[Any, Any]
SCHEMA_VERSION = 1


def kept_before(folder: Path, case: TestCase) -> Path:
    """Where inputs and expected outputs of a case are kept."""
    return folder / f"{_name(case)}.npz"


def kept_actual(folder: Path, case: TestCase) -> Path:
    """Where the outputs are kept that the backend handed over."""
    return folder / f"{_name(case)}.actual.npz"


def _name(case: TestCase) -> str:
    """Cases of one key have the same inputs; what they hand to the backend beside them may differ."""
    config = repr((case.backend_config, case.reference, case.base_dir))
    return f"{case.key.removeprefix('k1:')}-{hashlib.blake2b(config.encode(), digest_size=4).hexdigest()}"


@contextmanager
def tensors_kept(
    case: TestCase, driver: BackendDriver, folder: Path, announce: Callable[[Phase], None]
) -> Iterator[None]:
    """While inside, ``driver`` writes down what it hands over; the object is changed, never its class.

    Inputs and reference are made once more before, so that running stays as it is without this.
    """
    with suppress(Fault):  # it will be the verdict, since inputs and reference are the same again
        _keep_before(case, driver, folder, announce)
    announce(Phase.IDLE)
    kept_actual(folder, case).unlink(missing_ok=True)
    whole, run = case, driver.run
    run_into = driver.run_into if isinstance(driver, WritesOutputs) else None
    names = ("run",) if run_into is None else ("run", "run_into")

    def run_and_keep(case: TestCase, inputs: Sequence[Any]) -> Any:
        returned = run(case, inputs)
        if case.key == whole.key:  # else it is a part of a layer
            _keep_actual(case, returned, folder)
        return returned

    def run_into_and_keep(case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        assert run_into is not None
        run_into(case, inputs, outputs)
        if case.key == whole.key:
            _keep_actual(case, list(outputs), folder)

    before = {name: vars(driver)[name] for name in names if name in vars(driver)}
    vars(driver)["run"] = run_and_keep
    if run_into is not None:
        vars(driver)["run_into"] = run_into_and_keep
    try:
        yield
    finally:
        for name in names:
            vars(driver).pop(name, None)
        vars(driver).update(before)


def _keep_before(case: TestCase, driver: BackendDriver, folder: Path, announce: Callable[[Phase], None]) -> None:
    announce(Phase.GENERATE)
    inputs, known = make_inputs(case)
    tensors = {argument.path: array for argument, array in zip(case.inputs, inputs, strict=True)}
    offsets = {argument.path: argument.spec.offset for argument in case.inputs}
    path = kept_before(folder, case)
    write_archive(path, Archive(tensors=tensors, offsets=offsets, facts=_facts(case)))
    if case.expects_error is not None:
        return
    announce(Phase.REFERENCE)
    expected, _ = expected_outputs([case], inputs, known, driver)
    tensors |= {f"output{index}.expected": _dense(each.value) for index, each in enumerate(expected)}
    write_archive(path, Archive(tensors=tensors, offsets=offsets, facts=_facts(case)))


def _facts(case: TestCase) -> dict[str, Any]:
    return {"id": case.id, "key": case.key, "case": case_to_wire(case)}


def _keep_actual(case: TestCase, returned: Any, folder: Path) -> None:
    """Nothing is kept of what is no list of arrays; the verdict says what is wrong with it."""
    try:
        outputs = in_order(case, returned)
    except Fault:
        return
    path = kept_actual(folder, case)
    if path.exists():  # a further call, with other inputs of the same shapes
        return
    tensors = {f"output{index}.actual": _dense(each) for index, each in enumerate(outputs)}
    write_archive(path, Archive(tensors=tensors))


def _dense(output: Any) -> Array:
    """Strides of outputs are nobody's statement: that of a reference's array is the order that NumPy worked in."""
    return np.array(output, order="C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Tensors by name (``input0``, ``output0.expected``, ``output0.actual``, ``output0.error``), and what is known.

    ``offsets`` says how many elements of an input's storage lie before its first one.
    """

    tensors: Mapping[str, Array]
    offsets: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def write_archive(path: Path, archive: Archive) -> None:
    """Write ``path`` in one piece.

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
    """Read what :func:`write_archive` wrote: bit for bit, in the same element types and strides.

    Raises:
        UsageError: if it is no such file.
    """
    try:
        with np.load(path) as saved:
            meta = json.loads(str(saved["meta"]))
            specs = {name: _spec(each) for name, each in meta.pop("tensors").items()}
            tensors = {name: _placed(saved[entry_name(name, spec)], spec) for name, spec in specs.items()}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (BadZipFile, KeyError, ValueError) as error:
        raise UsageError(f"{path} is not a file of saved tensors: {error}") from None
    return Archive(tensors=tensors, offsets={name: spec.offset for name, spec in specs.items()}, facts=meta)


def entry_name(name: str, spec: TensorSpec) -> str:
    """The name of the tensor's entry: ``input0``, ``input0.bfloat16``, ``input0.storage.bfloat16``."""
    storage = "" if spec.is_dense else ".storage"
    tag = "" if numpy_dtype(spec.dtype).isbuiltin == 1 else f".{spec.dtype.name}"
    return f"{name}{storage}{tag}"


def spec_of(tensor: Array, offset: int = 0) -> TensorSpec:
    """The layout that an array has, at ``offset`` or as far into its storage as negative strides need."""
    entry = dtype_of(tensor.dtype)
    strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
    if tensor.size == 0 or (not offset and strides == contiguous_strides(tensor.shape)):
        return TensorSpec(dtype=entry, shape=tensor.shape)
    before = -sum(min(0, (size - 1) * stride) for size, stride in zip(tensor.shape, strides, strict=True))
    return TensorSpec(dtype=entry, shape=tensor.shape, strides=strides, offset=max(offset, before))


def element_error(actual: Array, expected: Array) -> Array | None:
    """``|actual - expected|`` of every element as float64, None for other shapes; equal infinities and NaN give 0."""
    if actual.shape != expected.shape:
        return None
    wide = (widen(np.ascontiguousarray(each)) for each in (actual, expected))
    one, other = (each if each.dtype.kind in "fc" else each.astype(np.float64) for each in wide)
    with np.errstate(all="ignore"):
        error = np.abs(one - other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    # What is contiguous has one dimension at least; a scalar has none.
    errors: Array = np.asarray(np.where(same, 0.0, error), dtype=np.float64).reshape(actual.shape)
    return errors


def _spec(described: Mapping[str, Any]) -> TensorSpec:
    strides: Sequence[int] | None = described.get("strides")
    return TensorSpec(
        dtype=dtype(described["dtype"]),
        shape=tuple(described["shape"]),
        strides=None if strides is None else tuple(strides),
        offset=described.get("offset", 0),
    )


def _placed(stored: Array, spec: TensorSpec) -> Array:
    elements = stored if stored.dtype == numpy_dtype(spec.dtype) else stored.view(numpy_dtype(spec.dtype))
    return elements.reshape(spec.shape) if spec.is_dense else view(elements, spec)
