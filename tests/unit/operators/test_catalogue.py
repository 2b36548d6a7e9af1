"""Descriptors of the catalogue: names, hooks, domains, and their docs pages."""

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
    # One of each kind: test_pages_match_descriptors covers the others.
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


def test_gemm_reference_has_documented_path() -> None:
    assert callable(load_object("optest.operators.reference_impls:gemm_reference"))


@pytest.mark.parametrize("path", sorted(OPERATORS.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_operator_modules_are_named_by_content(path: Path) -> None:
    # A module with descriptors is in the catalogue; one that imports NumPy is named *_reference.
    module = f"optest.operators.{path.parent.name}.{path.stem}"
    described = getattr(importlib.import_module(module), "DESCRIPTORS", ())
    assert {each.name for each in described} <= {each.name for each in FAMILIES.get(path.parent.name, ())}
    assert path.stem.endswith("_reference") or "import numpy" not in path.read_text(encoding="utf-8")


def test_pages_match_descriptors() -> None:
    pages = operator_pages()
    outdated = [path for path, text in pages.items() if (DOCS / path).read_text(encoding="utf-8") != text]
    assert not outdated, "out of date; make docs"
    assert {f"operators/{each.name}" for each in (DOCS / "operators").iterdir()} | {"operators.md"} == set(pages)


HOOKS = ("infer", "reference", "terms", "alternatives", "may_refuse", "sum_length", "operations", "samples", "domain")


def test_every_hook_loads() -> None:
    paths = [getattr(each, hook) for each in DESCRIPTORS for hook in HOOKS]
    assert [path for path in paths if isinstance(path, str) and not callable(load_object(path))] == []


def test_composed_rule_source_is_a_section() -> None:
    sources = [each.rule.source for each in DESCRIPTORS if each.rule and each.rule.source.startswith("docs/operators")]
    for page, _, name in (source.removeprefix("docs/").partition("#") for source in sources):
        assert f"\n## {name}\n" in operator_pages()[page]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("Expandd", "Expand"),
        ("Convv", "Conv"),
        ("reluu", "relu"),
        ("Clamp", "clamp"),
        ("Sdpa", "sdpa"),
    ],
)
def test_unknown_name_suggests_nearest_alias(name: str, suggestion: str) -> None:
    with pytest.raises(UnknownName) as caught:
        operators.get(name)
    assert caught.value.suggestion == suggestion


@pytest.mark.parametrize(("value", "expected"), [(1, True), (0, False), (True, True)])
def test_bool_attribute_reads_one_and_zero(value: object, expected: bool) -> None:
    assert operators.get("ReduceSum").attribute("keepdim").read(value) is expected


@pytest.mark.parametrize("value", [2, -1, 1.0, "1", "yes"])
def test_bool_attribute_refuses_other_values(value: object) -> None:
    with refusal(UnfitArguments, "operators.should_be_true_or"):
        operators.get("sum").attribute("keepdim").read(value)
