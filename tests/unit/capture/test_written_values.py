"""Values that are written out: the fewest digits that give the same bits, a row on each line, and words for a mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from capture_kit import entry_of, recorded  # noqa: E402

from optest.numerics import round_to  # noqa: E402
from optest.plan.yaml_source import load_value  # noqa: E402
from optest.spec import dtype as dtype_called  # noqa: E402
from optest.torch.capture.values import (  # noqa: E402
    shortest,
    words_of_mask,
    written,
)
from optest.torch.model_cases.writing import text_of_model_file  # noqa: E402
from optest.torch.tensors import to_torch, torch_dtype  # noqa: E402

pytestmark = pytest.mark.torch
INF = math.inf
MIN = torch.finfo(torch.float32).min
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("name", FLOATS)
def test_what_is_written_is_the_same_in_its_dtype(name: str) -> None:
    """Every bit pattern of 8 bits, and magnitudes of all sizes of the wider ones."""
    torch.manual_seed(0)
    kind = torch_dtype(dtype_called(name))
    spread = torch.randn(300, dtype=torch.float64) * 2.0 ** torch.randint(-140, 120, (300,))
    limits = torch.finfo(kind)
    edges = torch.tensor([limits.min, limits.max, limits.tiny, 0.0, -0.0], dtype=torch.float64)
    values = torch.cat([spread.clamp(limits.min, limits.max), edges]).to(kind)
    if values.element_size() == 1:
        values = torch.arange(256, dtype=torch.uint8).view(kind)
    wide = values.double()
    wide = wide[wide.isfinite()]
    again = to_torch(round_to(np.array(written(wide, name)), dtype_called(name)), torch.device("cpu"))
    assert torch.equal(again.double(), wide)
    assert torch.equal(again.double().signbit(), wide.signbit())


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (MIN, "float32", "-3.4028235e+38"),
        (torch.tensor(0.1).item(), "float32", "0.1"),
        (torch.tensor(0.1).item(), "float64", "0.10000000149011612"),
        (torch.finfo(torch.bfloat16).min, "bfloat16", "-3.39e+38"),
        (-65504.0, "float16", "-65500.0"),
        (1 / 3, "float64", "0.3333333333333333"),
        (INF, "float32", "inf"),
        (16777216.0, "float32", "16777216.0"),
    ],
)
def test_a_number_has_no_more_digits_than_its_dtype_needs(value: float, name: str, text: str) -> None:
    assert repr(shortest(value, name)) == text


CAUSAL = torch.full((4, 4), -INF).triu(1)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (CAUSAL, "causal (0.0 up to the diagonal, -inf above)"),
        (CAUSAL.expand(2, 1, 4, 4), "causal (0.0 up to the diagonal, -inf above)"),
        (torch.full((2, 4), MIN).triu(3), "causal (0.0 up to diagonal 2, -3.4e+38 above)"),
        (torch.full((4, 4), -INF).triu(2), "0.0 up to diagonal 1, -inf above"),
        (torch.full((4, 4), -INF).tril(-1), "-inf up to diagonal -1, 0.0 above"),
        (torch.ones(4, 4, dtype=torch.bool).tril(), "causal (true up to the diagonal, false above)"),
        (torch.ones(4, 4, dtype=torch.bool).triu(1), "causal (false up to the diagonal, true above)"),
        (torch.ones(5, 5).triu(-1).tril(1) - 1, "a band (0.0 from diagonal -1 to diagonal 1, -1.0 elsewhere)"),
        (torch.tensor([[[0.0, -INF]], [[-INF, 0.0]]]), "0.0 and -inf, the same in every row"),
        (torch.tensor([[0.0, -INF, 0.0], [-INF, 0.0, 0.0]]), "0.0 and -inf"),
        (torch.tensor([0.0, -INF]), "0.0 and -inf"),
        (torch.tensor([0.0, -INF, 1.0]), ""),
        (torch.zeros(3), ""),
    ],
)
def test_a_mask_in_words(mask: Any, words: str) -> None:
    assert words_of_mask(mask) == words


def test_a_note_says_what_order_a_mask_has() -> None:
    scores = torch.randn(2, 4, 4)
    (case,) = recorded(lambda: scores + CAUSAL).cases()
    assert "; input1 is the model's own mask: causal (0.0 up to the diagonal, -inf above)" in case["description"]
    (case,) = recorded(lambda: scores.masked_fill(CAUSAL < 0, 0.0)).cases()[1:]
    assert case["description"].endswith("6 of 16 true: causal (false up to the diagonal, true above)")


@pytest.mark.parametrize("shape", [(1, 1, 16, 16), (2, 3, 16, 16), (40, 40), (600,), (2, 1, 300)])
def test_values_have_a_line_for_each_row_and_are_read_as_they_were(shape: tuple[int, ...]) -> None:
    mask = torch.full(shape, MIN).triu(1) if len(shape) > 1 else torch.tensor([0.0, MIN]).repeat(300)
    case = {"name": "a", **entry_of(lambda: torch.add(mask, 1.0))}
    text = text_of_model_file("m", [case], defaults={"dtype": "float32"})
    assert max(map(len, text.splitlines())) <= 120
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    tensor = load_value(text)["cases"][0]["inputs"][0]["tensor"]
    assert torch.equal(torch.tensor(tensor["init_args"]), mask)
    rows = math.prod(shape[:-1])
    assert len(text.splitlines()) >= 10 + rows


def test_short_values_stay_on_their_line() -> None:
    rows = CAUSAL[:2]
    case = {"name": "a", **entry_of(lambda: torch.add(rows, 1.0))}
    text = text_of_model_file("m", [case], defaults={"dtype": "float32"})
    assert "init_args: [[0.0, -.inf, -.inf, -.inf], [0.0, 0.0, -.inf, -.inf]]}" in text


def test_values_of_a_keyword_have_lines_too() -> None:
    q = torch.rand(1, 1, 40, 4)
    mask = torch.ones(40, 40, dtype=torch.bool).tril()
    entry = entry_of(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask))
    text = text_of_model_file("m", [{"name": "a", **entry}], defaults={"dtype": "float32"})
    assert max(map(len, text.splitlines())) <= 121
    assert load_value(text)["cases"][0]["kwmap"]["attn_mask"]["tensor"]["init_args"] == mask.int().tolist()
