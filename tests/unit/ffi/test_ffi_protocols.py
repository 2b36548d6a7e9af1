"""Operators detected in a library by the names of their functions."""

from __future__ import annotations

import msgspec

from optest.clib.library_report import find_operators


def test_camel_and_snake_case() -> None:
    camel = ["xCreateAddDescriptor", "xGetAddWorkspaceSize", "xAdd", "xDestroyAddDescriptor"]
    snake = ["y_create_add_descriptor", "y_get_add_workspace_size", "y_add", "y_destroy_add_descriptor"]
    assert find_operators(camel)["Add"].workspace == "xGetAddWorkspaceSize"
    operators = find_operators(snake)["add"]
    assert msgspec.structs.astuple(operators) == tuple(snake)


def test_operator_needs_run_and_destroy() -> None:
    assert find_operators(["xCreateAddDescriptor", "xAdd"]) == {}
    assert find_operators(["xCreateAddDescriptor", "xDestroyAddDescriptor"]) == {}
    assert find_operators(["xCreateTensorDescriptor", "xDestroyTensorDescriptor", "xAdd"]) == {}


def test_workspace_function_is_optional() -> None:
    operators = find_operators(["xCreateAddDescriptor", "xAdd", "xDestroyAddDescriptor"])
    assert operators["Add"].workspace == ""


def test_explicit_patterns() -> None:
    patterns = {"create": "new{name}", "workspace": "{name}Bytes", "run": "run{name}", "destroy": "end{name}"}
    names = ["newAdd", "runAdd", "endAdd", "AddBytes", "newSub", "runSub", "endSub", "new", "newMul", "runMul"]
    operators = find_operators(names, patterns)
    assert list(operators) == ["Add", "Sub"]
    assert operators["Add"].workspace == "AddBytes"
    assert operators["Sub"].workspace == ""


def test_other_words_for_run() -> None:
    assert find_operators(["xCreateAddDesc", "xExecuteAdd", "xDestroyAddDesc"])["Add"].run == "xExecuteAdd"
