"""Which names can be calls of torch, and what was meant by others."""

from __future__ import annotations

import pytest

from optest.spec.call_names import is_dotted, misnamed

ALLOWED = "a case is one call of torch: torch.add, torch.nn.functional.relu"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("abs", "op: torch.abs"),
        ("torch", ALLOWED),
        ("numpy.add", ALLOWED),
        ("os.system", ALLOWED),
        ("F.relu", "op: torch.nn.functional.relu"),
        ("torch.F.relu", "op: torch.nn.functional.relu"),
        ("nn.functional.relu", "op: torch.nn.functional.relu"),
        ("functional.relu", "op: torch.nn.functional.relu"),
        ("linalg.inv", "op: torch.linalg.inv"),
        ("Tensor.view", "op: torch.Tensor.view"),
        ("aten.add.Tensor", "op: torch.ops.aten.add.Tensor"),
        ("operator.add", "op: torch.add"),
        ("nn.ReLU", "torch.nn modules are not supported: write the function of torch.nn.functional"),
    ],
)
def test_a_name_of_another_kind_has_a_hint(name: str, hint: str) -> None:
    found = misnamed(name)
    assert found is not None
    assert found[0] == f"op is {name!r}, expected a dotted name of torch's"
    assert found[1].startswith(hint)
    assert is_dotted(name)


@pytest.mark.parametrize("name", ["os.system(1)", "torch.", "torch.add; 1", "", "a b", "torch..add"])
def test_what_is_no_name_is_told_apart(name: str) -> None:
    assert not is_dotted(name)
    assert misnamed(name) is not None


@pytest.mark.parametrize("name", ["torch.add", "torch.nn.functional.relu", "torch.ops.aten.add.Tensor", "torch.nope"])
def test_a_dotted_name_of_torch_is_for_torch_to_find(name: str) -> None:
    assert misnamed(name) is None
