"""The descriptors themselves: names, hooks, domains, the page made from them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from operator_pages import operator_pages
from texts import refusal

import optest.operators
from optest.errors import UnknownName
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS, FAMILIES
from optest.registry import load_object
from optest.spec import OperatorDescriptor, RuleClass, UnfitArguments

OPERATORS = Path(optest.operators.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
def test_descriptors_are_complete(descriptor: OperatorDescriptor) -> None:
    assert descriptor.rule is not None
    assert descriptor.rule.source
    assert descriptor.description
    assert all(attribute.description for attribute in descriptor.attributes)
    needs_terms = descriptor.rule.kind in (RuleClass.ACCUMULATE, RuleClass.COMPOSED)
    assert not needs_terms or descriptor.terms is not None
    names = {parameter.name for parameter in descriptor.tensors.inputs}
    assert not isinstance(descriptor.domain, dict) or set(descriptor.domain) <= names
    assert descriptor.dtype_variants[0][0] == "float32" or ("float32",) not in descriptor.dtype_variants
    assert len(set(descriptor.dtype_variants)) == len(descriptor.dtype_variants)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("elementwise_add", "add"),
        ("Gemm", "gemm"),
        ("Transpose", "permute"),
        ("Mod", "remainder"),
        ("Max", "maximum"),
        ("ArgMax", "argmax"),
        ("Conv", "conv2d"),
        ("GlobalAveragePool", "adaptive_avg_pool2d"),
        ("Gather", "embedding"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    """Of each kind one; the pages of the catalogue, which are held against the code, have them all."""
    assert operators.get(alias) is operators.get(name)


def test_attribute_aliases() -> None:
    total = operators.get("ReduceSum").bind({"axes": [1], "keepdims": True})
    assert total == {"dim": (1,), "keepdim": True, "dtype": None}
    assert operators.get("Softmax").bind({"axis": 0}) == {"dim": 0}
    assert operators.get("LayerNormalization").bind({"normalized_shape": 3, "epsilon": 1}) == {
        "normalized_shape": (3,),
        "eps": 1.0,
        "statistics": False,
    }
    assert operators.get("ArgMax").bind({"axis": 0, "keepdims": 1}) == {"dim": 0, "keepdim": True}
    gemm = operators.get("Gemm").bind({"transA": True, "transB": False})
    assert gemm == {"alpha": 1.0, "beta": 1.0, "trans_a": True, "trans_b": False, "out_dtype": None}
    with refusal(UnfitArguments, "operators.needs_the_attribute_dtype"):
        operators.get("cast").bind({})


def test_the_seeds_path_of_the_gemm_reference() -> None:
    assert callable(load_object("optest.operators.reference_impls:gemm_reference"))


@pytest.mark.parametrize("path", sorted(OPERATORS.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_modules_of_operators_are_found_by_what_they_need(path: Path) -> None:
    """A module with descriptors is in the catalogue; one that imports NumPy is called a reference."""
    module = f"optest.operators.{path.parent.name}.{path.stem}"
    described = getattr(importlib.import_module(module), "DESCRIPTORS", ())
    assert {each.name for each in described} <= {each.name for each in FAMILIES.get(path.parent.name, ())}
    assert path.stem.endswith("_reference") or "import numpy" not in path.read_text(encoding="utf-8")


def test_pages_are_made_from_descriptors() -> None:
    pages = operator_pages()
    outdated = [path for path, text in pages.items() if (DOCS / path).read_text(encoding="utf-8") != text]
    assert not outdated, "out of date; make docs"
    assert {f"operators/{each.name}" for each in (DOCS / "operators").iterdir()} | {"operators.md"} == set(pages)


HOOKS = ("infer", "reference", "terms", "alternatives", "may_refuse", "sum_length", "operations", "samples", "domain")


def test_every_hook_loads() -> None:
    paths = [getattr(each, hook) for each in DESCRIPTORS for hook in HOOKS]
    assert [path for path in paths if isinstance(path, str) and not callable(load_object(path))] == []


def test_a_composed_rule_names_the_section_of_its_derivation() -> None:
    sources = [each.rule.source for each in DESCRIPTORS if each.rule and each.rule.source.startswith("docs/operators")]
    for page, _, name in (source.removeprefix("docs/").partition("#") for source in sources):
        assert f"\n## {name}\n" in operator_pages()[page]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Expandd", "Expand"),
        ("Convv", "Conv"),
        ("reluu", "relu"),
        ("Clamp", "clamp"),
        ("Sdpa", "sdpa"),
    ],
)
def test_a_name_that_is_near_an_alias_suggests_it(name: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        operators.get(name)
    assert caught.value.suggestion == meant


@pytest.mark.parametrize(("stated", "read"), [(1, True), (0, False), (True, True)])
def test_truth_as_onnx_writes_it(stated: object, read: bool) -> None:
    """``keepdims=1`` is what its documentation has; the case is the same as with true."""
    assert operators.get("ReduceSum").attribute("keepdim").read(stated) is read


@pytest.mark.parametrize("stated", [2, -1, 1.0, "1", "yes"])
def test_what_is_neither_true_nor_false(stated: object) -> None:
    with refusal(UnfitArguments, "operators.should_be_true_or"):
        operators.get("sum").attribute("keepdim").read(stated)
