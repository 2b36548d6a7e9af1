"""The keys of a file of model cases, how each is read, and their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import Required, TypedDict

__all__ = ["MODEL_FILE", "known_keys", "model_cases_schema"]

_STRICT = ConfigDict(extra="forbid", strict=True)
_Sizes = list[Annotated[int, Field(ge=0)]]
_Word = Annotated[str, Field(min_length=1)]
_Allowed = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Seed = Annotated[int, Field(ge=0, lt=2**64)]


@with_config(_STRICT)
class TensorEntry(TypedDict, total=False):
    """A tensor: its shape, its layout in memory, and how it is filled."""

    shape: Annotated[_Sizes, Field(description="Sizes; with a preset those of the resulting view.")]
    dtype: Annotated[_Word, Field(description="fp16, bf16, fp32, int64, bool …, or torch.float16; else the case's.")]
    stride: Annotated[_Sizes, Field(description="Steps in elements; 0 repeats one element.")]
    storage_offset: Annotated[int, Field(ge=0, description="Elements before the first one.")]
    device: Annotated[_Word, Field(description="Where it was captured; it is made on the device under test.")]
    device_layout: Annotated[dict[str, Any], Field(description="Layout of one vendor's device; kept, not used.")]
    init: Annotated[_Word, Field(description="rand, randn, zeros, ones, arange, randint, uniform, data, full, eye …")]
    init_args: Annotated[Any, Field(description="low, high, value, path …; the values themselves for data.")]
    preset: Annotated[_Word, Field(description="noncontig_slice, transpose_view or expand_view.")]
    preset_args: Annotated[dict[str, Any], Field(description="dim and step; dim0 and dim1; base_shape.")]


@with_config(_STRICT)
class InputEntry(TypedDict, total=False):
    """One argument of the call: exactly one of these keys."""

    tensor: Annotated[TensorEntry, Field(description="A tensor.")]
    tensor_list: Annotated[list[TensorEntry], Field(description="A list of tensors.")]
    value: Annotated[Any, Field(description="A scalar, a list, or text that spells a tuple, a dtype or a device.")]
    py: Annotated[str, Field(description="A Python literal; slice(), Ellipsis, None, inf and nan are known.")]
    file: Annotated[_Word, Field(description="A .pt file that holds the tensor, relative to this file.")]


@with_config(_STRICT)
class ErrorEntry(TypedDict, total=False):
    """The error that the call has to be refused with."""

    type: Annotated[_Word, Field(description="RuntimeError, ValueError, TypeError, AssertionError …")]
    match: Annotated[str, Field(description="Part of its text.")]


@with_config(_STRICT)
class ConditionEntry(TypedDict, total=False):
    """When a case is left out."""

    expr: Required[Annotated[_Word, Field(description="Comparisons of cfg, env, dtype_str and device.")]]
    reason: Annotated[str, Field(description="Why.")]


_Conditions = _Word | ConditionEntry | list[_Word | ConditionEntry]


@with_config(_STRICT)
class ModelDefaults(TypedDict, total=False):
    """What holds for every case that does not state it itself."""

    dtype: Annotated[_Word, Field(description="Of tensors that state none.")]
    seed: Annotated[_Seed, Field(description="Of the fills.")]
    rtol: Annotated[_Allowed, Field(description="Share of |expected|.")]
    atol: Annotated[_Allowed, Field(description="In units of the output.")]


@with_config(_STRICT)
class ModelCase(ModelDefaults, total=False):
    """One call of torch."""

    name: Required[Annotated[_Word, Field(description="Unique in the file.")]]
    op: Required[Annotated[_Word, Field(description="Dotted name: torch.add, torch.nn.functional.silu, torch.view.")]]
    inputs: Annotated[list[InputEntry], Field(description="Positional arguments in order.")]
    attrs: Annotated[dict[str, Any], Field(description="Keyword arguments.")]
    kwmap: Annotated[dict[str, Any], Field(description="Keyword arguments, as captured.")]
    description: Annotated[str, Field(description="Where the call stands in the model.")]
    expects_error: Annotated[ErrorEntry, Field(description="The call has to be refused, on the CPU too.")]
    mark: Annotated[_Word | list[_Word], Field(description="Words to select cases by.")]
    marks: Annotated[_Word | list[_Word], Field(description="The same.")]
    skip_if: Annotated[_Conditions, Field(description="When the case is left out.")]


@with_config(_STRICT)
class ModelFile(TypedDict, total=False):
    """Calls of torch that a model makes."""

    model: Required[Annotated[_Word, Field(description="Name of the model.")]]
    default: Annotated[ModelDefaults, Field(description="What holds for every case.")]
    defaults: Annotated[ModelDefaults, Field(description="The same; only one of the two may stand there.")]
    cases: Required[Annotated[list[ModelCase], Field(min_length=1, description="The calls.")]]


MODEL_FILE: TypeAdapter[ModelFile] = TypeAdapter(ModelFile)


def model_cases_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a file of model cases, for editors."""
    schema = MODEL_FILE.json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def known_keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys that a mapping at this path may have."""
    match path:
        case ():
            return list(ModelFile.__annotations__)
        case ("default" | "defaults",):
            return list(ModelDefaults.__annotations__)
        case ("cases", int()):
            return list(ModelCase.__annotations__)
        case ("cases", int(), "inputs", int()):
            return list(InputEntry.__annotations__)
        case ("cases", int(), "inputs", int(), "tensor") | ("cases", int(), "inputs", int(), "tensor_list", int()):
            return list(TensorEntry.__annotations__)
        case ("cases", int(), "expects_error"):
            return list(ErrorEntry.__annotations__)
    return list(ConditionEntry.__annotations__)
