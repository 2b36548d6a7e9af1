"""What is wrong with a file of model cases in the words of its own dialect, where those of a plan would mislead."""

from __future__ import annotations

import dataclasses
import re

from optest.errors import Problem, nearest
from optest.plan.yaml_source import Path
from optest.torch.model_cases.schema import LEVELS, known_keys, level_of

__all__ = ["example_at", "in_own_words"]

_CASE = "{name: add.1, op: torch.add, inputs: [{tensor: {shape: [2, 3]}}, {value: 2}]}"
_EXAMPLES = {
    "model": "model: gpt-oss-20b",
    "default": "default: {dtype: fp16, seed: 123}",
    "defaults": "defaults: {dtype: fp16, seed: 123}",
    "cases": f"cases: [{_CASE}]",
    "name": "name: add.1",
    "op": "op: torch.add",
    "inputs": "inputs: [{tensor: {shape: [2, 3]}}, {value: 2}]",
    "tensor": "tensor: {shape: [2, 3], init: randn}",
    "tensor_list": "tensor_list: [{shape: [2, 3]}, {shape: [2, 3]}]",
    "tuple": "tuple: [{py: slice(None)}, {tensor: {shape: [3], dtype: int64}}]",
    "list": "list: [{tensor: {shape: [3]}}, {py: None}]",
    "py": "py: (Ellipsis, None, slice(None, 2))",
    "shape": "shape: [2, 3]",
    "stride": "stride: [3, 1]",
    "storage_offset": "storage_offset: 64",
    "dtype": "dtype: fp16",
    "init": "init: randn",
    "preset": "preset: transpose_view",
    "seed": "seed: 123",
    "rtol": "rtol: 0.001",
    "atol": "atol: 0.001",
    "grad": "grad: true",
    "same_strides": "same_strides: true",
    "reference": "reference: package.module:name",
    "description": "description: modeling_gpt_oss.py:138",
    "type": "expects_error: {type: RuntimeError, match: view}",
    "match": "expects_error: {type: RuntimeError, match: view}",
    "device": "device: cuda:0",
    "device_layout": "device_layout: {stride_map: [1]}",
    "value": "value: 2",
    "file": "file: x.pt",
    "attrs": "attrs: {dim: -1}",
    "kwmap": "kwmap: {dim: -1}",
    "preset_args": "preset_args: {dim: 1, step: 2}",
    "expects_error": "expects_error: {type: RuntimeError, match: view}",
    "skip_if": "skip_if: {expr: device == 'npu', reason: why}",
}
_ITEMS = {"cases": f"- {_CASE}", "inputs": "- tensor: {shape: [2, 3]}"}
_OF_A_PLAN = re.compile("relu|input0|indent|margin|tolerance:")
_CUT_OFF = re.compile(r"[()\[\]]")
"""In a key: what YAML left over of ``{py: (slice(None), 2)}``, where a comma begins the next key."""


def in_own_words(path: Path, problem: Problem) -> Problem:
    """The problem, with the owner of an unknown key and the remedies of this dialect."""
    if problem.message.startswith("unknown key ") and "skip_if" not in path:
        message = f"unknown key {str(path[-1])!r} of {level_of(path[:-1])}"
        hint = problem.hint if problem.hint.startswith("a space is missing") else _remedy(path)
        return dataclasses.replace(problem, message=message, hint=hint)
    if problem.hint and not _OF_A_PLAN.search(problem.hint):
        return problem
    return dataclasses.replace(problem, hint=example_at(path))


def _remedy(path: Path) -> str:
    name, known = str(path[-1]), known_keys(path[:-1])
    if _CUT_OFF.search(name):
        return "between { and } a value with commas stands in quotes: {py: '(slice(None), 2)'}"
    near = nearest(name, known)
    if near:
        return f"did you mean {near}?"
    elsewhere = [level for level, entry in LEVELS.items() if name in entry.__annotations__]
    return f"it is a key of {' and of '.join(elsewhere)}" if elsewhere else f"known keys: {', '.join(known)}"


def example_at(path: Path) -> str:
    """How the value at ``path``, or the nearest thing around it, may look; "" where nobody can tell."""
    for depth in range(len(path), 0, -1):
        last = path[depth - 1]
        if isinstance(last, str) and last in _EXAMPLES:
            return _ITEMS.get(last, _EXAMPLES[last]) if depth < len(path) else _EXAMPLES[last]
    return ""
