"""The fact sheet: one record per function of torch, found by every name, and no second table of names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from optest.operators import operators
from optest.spec.call_names import canonical
from optest.torch.fact_sheet import FACTS, facts_of
from optest.torch.facts import Facts

ROOT = Path(__file__).parents[3]
GUEST = ROOT / "src" / "optest" / "torch"
PLAIN = Facts()

WITHOUT_RECORD = """
_foreach_add _native_multi_head_attention aminmax arange binary_cross_entropy_with_logits cosine_similarity dim
element_size exp2 fft_rfft get_default_dtype get_num_threads glu gradient grid_sample hardtanh hinge_embedding_loss i0
interpolate is_contiguous is_floating_point iter lgamma linspace log10 lshift native_group_norm native_layer_norm
nonzero poisson_nll_loss polygamma promote_types repr result_type rrelu segment_reduce sinc size
special_bessel_j0 special_i1 special_zeta stride sym_sum tanhshrink to_sparse var_mean xlogy
"""
"""Functions that captured models and tests call and of which nothing is known: torch.testing's rule judges them. Who
adds one asks here whether something should be known of it."""

WORDS_OF_OTHERS = {
    ("calls/decompositions.py", "_FAMILIES"),  # families of factors
    ("calls/indices.py", "_TENSOR_POSITIONS"),  # kinds and names of arguments
    ("capture/naming.py", "_WORDS"),  # words of Python's operators
    ("capture/naming.py", "_PROPERTIES"),  # properties, and the calls that they are
}
"""Tables whose keys are no functions of torch, though some are called alike."""


def test_records_stand_under_canonical_names() -> None:
    for name, facts in FACTS.items():
        assert name in (canonical(f"torch.{name}").operator, canonical(f"torch.ops.aten.{name}").operator)
        assert facts != PLAIN, name


def test_every_fact_is_one_of_some_function() -> None:
    unused = [
        each.name
        for each in fields(Facts)
        if all(getattr(facts, each.name) == getattr(PLAIN, each.name) for facts in FACTS.values())
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("torch.add", ["torch.Tensor.add_", "torch.iadd", "torch.Tensor.__radd__", "torch.ops.aten.add.Tensor"]),
        ("torch.index_put", ["torch.Tensor.index_put_", "torch.ops.aten.index_put_.default"]),
        ("torch.getitem", ["torch.Tensor.__getitem__", "torch.Tensor.getitem"]),
        ("torch.linalg.svd", ["torch.ops.aten.linalg_svd", "torch.ops.aten._linalg_svd.default"]),
    ],
)
def test_spellings_share_a_record(name: str, others: list[str]) -> None:
    assert facts_of(name) != PLAIN
    assert [other for other in others if facts_of(other) is not facts_of(name)] == []


def test_foreign_operator_has_no_facts() -> None:
    assert facts_of("torch.ops.mylib.add.default") == PLAIN


def called() -> Iterator[str]:
    """What the captured models of ``examples`` and the tests of calls and of capture call."""
    for path in (ROOT / "examples" / "models").glob("*.yaml"):
        yield from re.findall(r"\bop: (torch[\w.]+)", path.read_text())
    for path in (each for name in ("torch_calls", "capture") for each in (ROOT / "tests/unit" / name).glob("*.py")):
        yield from re.findall(r"[\"'](torch(?:\.\w+)+)\(", path.read_text())


def test_functions_without_a_record_are_listed() -> None:
    pytest.importorskip("torch")
    known = {canonical(name).operator for name in called() if not canonical(name).is_foreign and is_of_torch(name)}
    assert sorted(name for name in known if name not in FACTS and name not in operators) == WITHOUT_RECORD.split()


def is_of_torch(name: str) -> bool:
    from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find_callable

    try:
        find_callable(name)
    except (NoSuchCallable, NotAnOperator):
        return False
    return True


def tables(path: Path) -> Iterator[tuple[str, set[str]]]:
    """The names and the words of what a module collects at its top."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            texts = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
            words = {word for text in texts if isinstance(text, str) for word in text.split()}
            if ast.unparse(target) != "__all__":
                yield ast.unparse(target), words


NOT_TABLES = ("cases.py", "fact_sheet.py", "guest.py")


def modules() -> list[Path]:
    """Not the words of model cases and of options, which are theirs, nor how the catalogue's operators are made."""
    found = [
        *GUEST.glob("*.py"),
        *(each for name in ("calls", "capture", "opinfo") for each in GUEST.glob(f"{name}/*")),
    ]
    return sorted(each for each in found if each.suffix == ".py" and each.name not in NOT_TABLES)


def test_no_table_of_torch_names_stands_elsewhere() -> None:
    found = {
        (str(path.relative_to(GUEST)), name): known
        for path in modules()
        for name, words in tables(path)
        if len(known := {word for word in words if word.isidentifier() and facts_of(f"torch.{word}") != PLAIN}) > 1
    }
    assert set(found) == WORDS_OF_OTHERS, found
