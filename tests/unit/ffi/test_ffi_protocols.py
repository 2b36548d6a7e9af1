"""Operators detected in a library by the names of their functions."""

from __future__ import annotations

import msgspec
import pytest

from optest.clib.library_report import find_operators

PATTERNS = {"create": "new{name}", "workspace": "{name}Bytes", "run": "run{name}", "destroy": "end{name}"}
CREATE, DESTROY = "xCreateAddDescriptor", "xDestroyAddDescriptor"
CAMEL = f"{CREATE} xGetAddWorkspaceSize xAdd {DESTROY}"
SNAKE = "y_create_add_descriptor y_get_add_workspace_size y_add y_destroy_add_descriptor"


@pytest.mark.parametrize(
    ("names", "patterns", "expected"),
    [
        (CAMEL, None, {"Add": CAMEL}),
        (SNAKE, None, {"add": SNAKE}),
        (f"{CREATE} xAdd {DESTROY}", None, {"Add": f"{CREATE}  xAdd {DESTROY}"}),
        ("xCreateAddDesc xExecuteAdd xDestroyAddDesc", None, {"Add": "xCreateAddDesc  xExecuteAdd xDestroyAddDesc"}),
        (f"{CREATE} xAdd", None, {}),
        (f"{CREATE} {DESTROY}", None, {}),
        ("xCreateTensorDescriptor xDestroyTensorDescriptor xAdd", None, {}),
        (
            "newAdd runAdd endAdd AddBytes newSub runSub endSub new newMul runMul",
            PATTERNS,
            {"Add": "newAdd AddBytes runAdd endAdd", "Sub": "newSub  runSub endSub"},
        ),
    ],
    ids=["camel", "snake", "no-workspace", "other-words", "no-destroy", "no-run", "tensor", "patterns"],
)
def test_operators_are_detected(names: str, patterns: dict[str, str] | None, expected: dict[str, str]) -> None:
    """What is expected of an operator are its functions: create, workspace ("" for none), run and destroy."""
    found = find_operators(names.split(), *([patterns] if patterns else []))
    functions = [(name, " ".join(msgspec.structs.astuple(each))) for name, each in found.items()]
    assert functions == list(expected.items())
