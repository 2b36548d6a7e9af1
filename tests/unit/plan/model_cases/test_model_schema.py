"""The JSON Schema of model cases: what it takes and refuses is what the reader takes and refuses."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml
from model_kit import TENSOR, file_of, problems_of

from optest.torch.model_cases import model_cases_schema
from optest.torch.model_cases.schema import ModelCase, ModelFile, TensorEntry, known_keys

SCHEMA: dict[str, Any] = model_cases_schema()

GOOD = [
    f"- {{name: a, op: torch.abs, inputs: [{TENSOR}]}}",
    "- {name: a, op: torch.abs, inputs: [{tensor_list: [{shape: []}]}, {value: null}, {py: '1'}]}",
    "- {name: a, op: torch.abs, marks: x, mark: [y, z], skip_if: device == 'npu'}",
    "- {name: a, op: torch.abs, skip_if: {expr: device == 'npu', reason: x}}",
    "- {name: a, op: torch.abs, skip_if: [device == 'npu', {expr: device == 'mlu'}]}",
    "- {name: a, op: torch.abs, expects_error: {type: RuntimeError}, attrs: {a: 1}, kwmap: {b: [1]}}",
    "- {name: a, op: torch.abs, dtype: fp16, seed: 3, rtol: 0, atol: 0.5, description: x}",
    "- {name: a, op: torch.f, inputs: [{tensor: {shape: [2, 2], stride: [1, 2], storage_offset: 1, device: cpu, "
    "device_layout: {a: 1}, init: uniform, init_args: {low: 0}, dtype: bf16}}]}",
    "- {name: a, op: torch.f, inputs: [{tensor: {shape: [2, 2], preset: transpose_view, preset_args: {dim0: 0}}}]}",
    "- {name: a, op: torch.f, inputs: [{tuple: [{py: slice(None)}, {list: [{tensor: {shape: [2]}}, {py: None}]}]}]}",
    "- {name: a, op: torch.f, kwmap: {mask: {tensor: {shape: [2]}}, sizes: {py: '(1, 2)'}}}",
]
GOOD += [
    f"- {{name: a, op: torch.abs, inputs: [{{tensor: {{shape: [2], init: {init}}}}}]}}" for init in ("rand", "xavier")
]
BAD = [
    "[]",
    "- {name: a}",
    "- {op: torch.abs}",
    "- {name: '', op: torch.abs}",
    "- {name: a, op: torch.abs, zzz: 1}",
    "- {name: a, op: torch.abs, inputs: [{}]}",
    "- {name: a, op: torch.abs, inputs: [{value: 1, py: '1'}]}",
    "- {name: a, op: torch.abs, inputs: [{tensor: {shape: [-1]}}]}",
    "- {name: a, op: torch.abs, inputs: [{tensor: {shape: 2x3}}]}",
    "- {name: a, op: torch.abs, inputs: [{tensor: {shape: [2], zzz: 1}}]}",
    "- {name: a, op: torch.abs, inputs: [{tuple: [{tensor: {shape: 2x3}}]}]}",
    "- {name: a, op: torch.abs, inputs: [{list: [{}]}]}",
    "- {name: a, op: torch.abs, inputs: [{tuple: {tensor: {shape: [2]}}}]}",
    "- {name: a, op: torch.abs, kwmap: {mask: {tensor: {shape: 2x3}}}}",
    "- {name: a, op: torch.abs, kwmap: {mask: {tensor: {shape: [2], zzz: 1}}}}",
    "- {name: a, op: torch.abs, skip_if: {reason: x}}",
    "- {name: a, op: torch.abs, skip_if: {expr: 'True', zzz: x}}",
    "- {name: a, op: torch.abs, skip_if: 3}",
    "- {name: a, op: torch.abs, marks: [3]}",
    "- {name: a, op: torch.abs, expects_error: {zzz: 1}}",
    "- {name: a, op: torch.abs, expects_error: {type: RunError}}",
    "- {name: a, op: torch.abs, inputs: [{tensor: {shape: [2], init: rnd}}]}",
    "- {name: a, op: torch.abs, inputs: [{tensor: {shape: [2, 2], preset: expnd_view}}]}",
    "- {name: a, op: torch.abs, seed: -1}",
    "- {name: a, op: torch.abs, rtol: -1}",
]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["title"] == "optest model cases"
    assert sorted(SCHEMA["required"]) == ["cases", "model"]


@pytest.mark.parametrize("cases", GOOD)
def test_it_takes_what_the_reader_takes(cases: str) -> None:
    assert problems_of(file_of(cases)) == []
    jsonschema.validate(yaml.safe_load(file_of(cases)), SCHEMA)


@pytest.mark.parametrize("cases", BAD)
def test_it_refuses_what_the_reader_refuses(cases: str) -> None:
    assert problems_of(file_of(cases))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(file_of(cases)), SCHEMA)


def test_every_key_is_described() -> None:
    for owner in (SCHEMA, *SCHEMA["$defs"].values()):
        for name, entry in owner["properties"].items():
            assert entry.get("description"), (owner["title"], name)


def test_known_keys() -> None:
    assert known_keys(()) == list(ModelFile.__annotations__)
    assert set(known_keys(("default",))) == {"dtype", "seed", "rtol", "atol", "grad", "same_strides"}
    assert known_keys(("cases", 3)) == list(ModelCase.__annotations__)
    assert known_keys(("cases", 3, "inputs", 0, "tensor_list", 1)) == list(TensorEntry.__annotations__)
    assert known_keys(("cases", 3, "expects_error")) == ["type", "match"]
    assert known_keys(("cases", 3, "kwmap")) == []
