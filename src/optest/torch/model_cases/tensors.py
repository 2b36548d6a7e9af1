"""Translation of a tensor of a model case to the layout, dtype and fill of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from optest.errors import UnknownName, did_you_mean
from optest.plan.values import Misfit, shown
from optest.spec import DType, TensorSpec, contiguous_strides, dtype_names
from optest.spec import dtype as dtype_called
from optest.store import PathError
from optest.torch.model_cases.inits import fill_of, shape_of_data

if TYPE_CHECKING:
    from optest.torch.model_cases.saved_tensors import SavedTensor


_OTHER_DTYPES = {
    "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32",
    "fp64": "float64", "double": "float64", "long": "int64", "int": "int32", "short": "int16", "char": "int8",
    "byte": "uint8", "cfloat": "complex64", "cdouble": "complex128", "fp8": "float8_e4m3fn",
}  # fmt: skip
_MOST_DIMENSIONS = 64
_MOST_BYTES = 2**63 - 1
_SUFFIXES = (".pt", ".npy", ".npz", ".bin", ".safetensors")


def dtype_of(word: str) -> DType:
    """Return the dtype of a word such as ``fp16``, ``float16`` or ``torch.float16``.

    Raises:
        Misfit: for an unknown dtype.
    """
    name = word.removeprefix("torch.")
    try:
        return dtype_called(_OTHER_DTYPES.get(name, name))
    except UnknownName as error:
        near = error.suggestion
        hint = f"did you mean {near}?" if near else f"known dtypes: {', '.join(dtype_names())}"
        raise Misfit(f"unknown dtype {word!r}", hint=hint) from None


@contextmanager
def at_path(*path: str | int) -> Iterator[None]:
    """Set ``path`` on any Misfit raised in the block, replacing the path that it has."""
    try:
        yield
    except Misfit as misfit:
        misfit.path = path
        raise


def planned(entry: Mapping[str, Any], default: str, locate: Callable[[str], Path]) -> tuple[dict[str, Any], str, Any]:
    """Translate an entry ``tensor`` to its entries in ``shapes``, ``dtypes`` and ``generator`` of a plan.

    ``default`` is the dtype of the case, ``locate`` returns the path of a named file.

    Raises:
        Misfit: for an invalid layout, dtype or fill.
    """
    saved = _saved(entry, locate)
    shape = _tensor_shape(entry, saved)
    kind = _tensor_dtype(entry, default, saved)
    if saved is not None and "stride" not in entry and "preset" not in entry:
        entry = {**entry, "stride": list(saved.strides)}
    layout = _layout_entry({**entry, "shape": shape}, kind)
    return layout, kind.name, fill_of(entry, kind, shape)


_TO_SAVE = "torch.save(tensor, 'x.pt') writes one"
_FROM_FILE = "remove shape and dtype: a .pt file contains them"


def _saved(entry: Mapping[str, Any], locate: Callable[[str], Path]) -> SavedTensor | None:
    """Return the description of the tensor in a .pt file, None if the entry has another init or kind of file.

    Raises:
        Misfit: if the file does not exist or cannot be read.
    """
    given = entry.get("init_args")
    if entry.get("init") != "file" or not (given is None or isinstance(given, dict)):
        return None
    stated = given or {}
    for word in ("path", "key"):
        if stated.get(word) is not None and not (isinstance(stated[word], str) and stated[word]):
            message = f"{word} is {shown(stated[word])}, expected text"
            raise Misfit(message, path=("init_args", word), hint="init_args: {path: x.pt}")
    if stated.get("path") is None:
        raise Misfit("init is file and init_args has no path", path=("init_args",), hint="init_args: {path: x.pt}")
    name: str = stated["path"]
    with at_path("init_args", "path"):
        try:
            path = locate(name)
        except PathError as error:
            raise Misfit(str(error)) from None
        suffix = path.suffix.lower()
        if suffix not in _SUFFIXES:
            raise Misfit(f"{name} ends in {suffix!r}, expected one of {', '.join(_SUFFIXES)}", hint=_TO_SAVE)
        if not path.is_file():
            raise Misfit(f"there is no file {shown(name)}", hint="relative paths start from the folder of this file")
        if suffix != ".pt":
            return None
        from optest.torch.model_cases.saved_tensors import saved_tensor  # few files of cases need it

        return saved_tensor(path, name, stated.get("key"))


def _tensor_shape(entry: Mapping[str, Any], saved: SavedTensor | None) -> list[int]:
    """Return the explicit shape, else that of the file or the written data; Misfit if all lack it or it differs."""
    stated: list[int] | None = entry.get("shape")
    if stated is None and saved is not None:
        return list(saved.shape)
    if stated is None and entry.get("init") == "data":
        return shape_of_data(entry.get("init_args"))
    if stated is None:
        raise Misfit("the tensor has no shape", hint="shape: [2, 3]")
    if saved is not None and stated != list(saved.shape):
        message = f"shape is {stated}, expected {list(saved.shape)}, as in the file"
        raise Misfit(message, path=("shape",), hint=_FROM_FILE)
    return stated


def _tensor_dtype(entry: Mapping[str, Any], default: str, saved: SavedTensor | None) -> DType:
    """Return the explicit dtype, else that of the saved tensor, else ``default``; Misfit if the file has another."""
    if saved is not None and "dtype" not in entry:
        return dtype_of(saved.dtype)
    with at_path(*(["dtype"] if "dtype" in entry else [])):
        kind = dtype_of(entry.get("dtype", default))
    if saved is not None and kind.name != saved.dtype:
        message = f"dtype is {entry['dtype']}, expected {saved.dtype}, as in the file"
        raise Misfit(message, path=("dtype",), hint=_FROM_FILE)
    return kind


def _layout_entry(entry: Mapping[str, Any], dtype: DType) -> dict[str, Any]:
    """Return the entry of a plan's ``shapes``: the shape, with strides and offset if the tensor is not dense."""
    shape: list[int] = entry["shape"]
    strides, offset = entry.get("stride"), entry.get("storage_offset", 0)
    if len(shape) > _MOST_DIMENSIONS:
        message = f"the tensor has {len(shape)} dimensions, expected at most {_MOST_DIMENSIONS}"
        raise Misfit(message, path=("shape",))
    dense = list(contiguous_strides(tuple(shape)))
    if entry.get("preset") is not None:
        if strides is not None or offset:
            message = "preset is combined with stride or storage_offset, which set the same layout"
            raise Misfit(message, path=("preset",), hint="keep one of them")
        strides = strides_of_preset(entry["preset"], entry.get("preset_args") or {}, shape)
    elif "preset_args" in entry:
        raise Misfit("preset_args is set without preset", path=("preset_args",), hint="preset: noncontig_slice")
    if strides is not None and len(strides) != len(shape):
        hint = f"a dense tensor has stride: {dense}"
        raise Misfit(f"stride has {len(strides)} entries, expected {len(shape)}", path=("stride",), hint=hint)
    spec = TensorSpec(
        dtype=dtype, shape=tuple(shape), strides=None if strides is None else tuple(strides), offset=offset
    )
    needed = spec.storage_elements * dtype.itemsize_bytes
    if needed > _MOST_BYTES or spec.nbytes > _MOST_BYTES:
        raise Misfit(
            f"the tensor spans {max(needed, spec.nbytes):,} bytes, expected {_MOST_BYTES:,} at most", hint=_SMALLER
        )
    if strides in (None, dense) and not offset:
        return {"shape": shape}
    return {"shape": shape, "strides": dense if strides is None else strides, "offset": offset}


_SMALLER = "check shape, stride and storage_offset: they count elements, not bytes"


# A preset describes a non-contiguous view; shape is that of the view.
_ARGS = ("preset_args",)


def strides_of_preset(name: str, given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """Return the strides in elements of the view of ``shape`` that a preset describes.

    Raises:
        Misfit: for a preset that is unknown, does not fit, or would leave the tensor contiguous.
    """
    preset = PRESETS.get(name)
    if preset is None:
        message = f"preset is {name!r}, expected one of {', '.join(PRESETS)}"
        raise Misfit(message, path=("preset",), hint=did_you_mean(name, PRESETS))
    try:
        strides = preset.strides(given, shape)
        if strange := [key for key in given if key not in preset.takes]:
            message = f"preset_args has {strange[0]!r}, expected {' and '.join(preset.takes)}"
            raise Misfit(message, path=(*_ARGS, strange[0]))
    except Misfit as misfit:
        misfit.hint = preset.example
        raise
    # As torch has it: strides of sizes 1 do not count, and an empty tensor is contiguous.
    dense = contiguous_strides(tuple(shape))
    if 0 in shape or all(size == 1 or got == want for size, got, want in zip(shape, strides, dense, strict=True)):
        message = f"{name} leaves a tensor of shape {list(shape)} contiguous, expected a non-contiguous one"
        raise Misfit(message, path=_ARGS if given else ("preset",), hint="choose other dimensions or no preset")
    return strides


def _noncontig_slice(given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """Return the strides of a view of every ``step``-th element of dimension ``dim``."""
    dim, step = _dimension(given, "dim", shape, -1), _integer_argument(given, "step", 2)
    if not 1 <= step < 2**31:
        raise Misfit(f"step is {step}, expected 1 or more", path=(*_ARGS, "step"))
    base = [size * step if index == dim else size for index, size in enumerate(shape)]
    strides = list(contiguous_strides(tuple(base)))
    strides[dim] *= step
    return strides


def _transpose_view(given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor with ``dim0`` and ``dim1`` swapped."""
    first, second = _dimension(given, "dim0", shape, 0), _dimension(given, "dim1", shape, 1)
    base = list(shape)
    base[first], base[second] = base[second], base[first]
    strides = list(contiguous_strides(tuple(base)))
    strides[first], strides[second] = strides[second], strides[first]
    return strides


def _expand_view(given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """Return the strides of a tensor of ``base_shape`` expanded along its sizes of 1."""
    base = given.get("base_shape", [1, *shape[1:]] if shape else [])
    if not isinstance(base, list) or len(base) > len(shape):
        message = f"base_shape is {shown(base)}, expected a list of at most {len(shape)} sizes"
        raise Misfit(message, path=(*_ARGS, "base_shape"))
    missing = len(shape) - len(base)
    if any(
        type(size) is not int or size not in (1, wanted) for size, wanted in zip(base, shape[missing:], strict=True)
    ):
        raise Misfit(f"base_shape {shown(base)} cannot be expanded to {list(shape)}", path=(*_ARGS, "base_shape"))
    dense = contiguous_strides(tuple(base))
    strides: list[int] = []
    for index in reversed(range(len(shape))):
        own, size = index - missing, shape[index]
        if own >= 0:
            stride = dense[own] if base[own] == size else 0
        else:
            stride = (shape[index + 1] * strides[-1] if strides else 1) if size == 1 else 0
        strides.append(stride)
    return strides[::-1]


class Preset(NamedTuple):
    """A preset: the function of its strides, its arguments, and an example of them."""

    strides: Callable[[Mapping[str, Any], Sequence[int]], list[int]]
    takes: tuple[str, ...]
    example: str


PRESETS: Mapping[str, Preset] = {
    "noncontig_slice": Preset(_noncontig_slice, ("dim", "step"), "preset_args: {dim: -1, step: 2}"),
    "transpose_view": Preset(_transpose_view, ("dim0", "dim1"), "preset_args: {dim0: 0, dim1: 1}"),
    "expand_view": Preset(_expand_view, ("base_shape",), "preset_args: {base_shape: [1, 3]}"),
}


def _integer_argument(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(f"{name} is {shown(value)}, expected an integer", path=(*_ARGS, name))
    return value


def _dimension(given: Mapping[str, Any], name: str, shape: Sequence[int], default: int) -> int:
    """Return a dimension from 0 up; raise Misfit unless it is an integer within the tensor's dimensions."""
    is_stated = name in given
    value, rank = _integer_argument(given, name, default), len(shape)
    if not -rank <= value < rank:
        path = (*_ARGS, name) if is_stated else ("preset",)
        raise Misfit(f"{name} is {value}, expected a dimension of a tensor with {rank}", path=path)
    return value % rank
