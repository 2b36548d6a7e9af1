"""Tensors and arguments as entries: layout, what is kept of the values, and what the reader makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from texts import says

torch = pytest.importorskip("torch")

from capture_kit import entries_of, entry_of, recorded  # noqa: E402

from optest.numerics import round_to  # noqa: E402
from optest.plan import parse_plan  # noqa: E402
from optest.plan.yaml_source import load_value  # noqa: E402
from optest.spec import dtype as dtype_called  # noqa: E402
from optest.spec.calls import TorchName, parse_call  # noqa: E402
from optest.torch.capture.naming import NamedCall  # noqa: E402
from optest.torch.capture.values import (  # noqa: E402
    describe_call,
    shortest,
    tensor_entries,
    words_of_mask,
    written,
)
from optest.torch.model_cases.writing import text_of_model_file  # noqa: E402
from optest.torch.tensors import to_torch, torch_dtype  # noqa: E402

pytestmark = pytest.mark.torch


INF, NAN = math.inf, math.nan


def tensor_of(tensor: Any, function: Callable[[Any], object] = torch.abs) -> dict[str, Any]:
    """How the first argument of a call is written."""
    found: dict[str, Any] = entry_of(lambda: function(tensor))["inputs"][0]["tensor"]
    return found


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        (lambda: torch.rand(2, 3), {"shape": [2, 3]}),
        (lambda: torch.rand(()), {"shape": []}),
        (lambda: torch.rand(2, 3).t(), {"shape": [3, 2], "stride": [1, 3]}),
        (lambda: torch.rand(2, 3)[:, 1:], {"shape": [2, 2], "stride": [3, 1], "storage_offset": 1}),
        (lambda: torch.rand(2, 3)[1:], {"shape": [1, 3], "storage_offset": 3}),
        (lambda: torch.rand(3).expand(2, 3), {"shape": [2, 3], "stride": [0, 1]}),
        (lambda: torch.rand(6).as_strided((3, 2), (1, 1)), {"shape": [3, 2], "stride": [1, 1]}),
        (lambda: torch.rand(1, 2, 3, 3).to(memory_format=torch.channels_last),
         {"shape": [1, 2, 3, 3], "stride": [18, 1, 6, 2]}),
    ],
)  # fmt: skip
def test_the_layout_is_that_of_the_model(make: Callable[[], Any], layout: dict[str, Any]) -> None:
    found = tensor_of(make())
    assert {key: found[key] for key in ("shape", "stride", "storage_offset") if key in found} == layout
    assert found["dtype"] == "float32"


@pytest.mark.parametrize(
    ("tensor", "fill"),
    [
        (torch.tensor([-1.5, 2.0]), {"init": "randn"}),
        (torch.zeros(3), {"init": "randn"}),  # a bias that was initialised; zeros would hide it
        (torch.ones(3), {"init": "rand"}),
        (torch.tensor([0.0, 3.5]), {"init": "rand"}),
        (torch.tensor([0.5, 1000.0]), {"init": "uniform", "init_args": {"low": 0.0, "high": 1024.0}}),
        (torch.tensor([-9.0, 1.5]), {"init": "uniform", "init_args": {"low": -16.0, "high": 16.0}}),
        (torch.tensor([0.0, float("-inf")]), {"init": "data", "init_args": [0.0, -INF]}),
        (torch.tensor([0.0, torch.finfo(torch.float32).min]),
         {"init": "data", "init_args": [0.0, -3.4028235e38]}),
        (torch.full((5,), -1e38), {"init": "full", "init_args": {"value": -1e38}}),
        (torch.full((2,), -INF), {"init": "data", "init_args": [-INF, -INF]}),
        (torch.tensor([0.0, -65504.0], dtype=torch.float16), {"init": "data", "init_args": [0.0, -65500.0]}),
        (torch.tensor([0.0, -1e9]).repeat(99), {"init": "data", "init_args": [0.0, -1e9] * 99}),
        (torch.tensor([1.0, -1e9]), {"init": "uniform", "init_args": {"low": -(2.0**30), "high": 2.0**30}}),
        (torch.tensor([True] * 99), {}),
        (torch.tensor([0.1, 0.2, 0.3, float("-inf")]), {"init": "data", "init_args": [-2.0, -0.25, 1.5, -INF]}),
        (torch.tensor([1.0, float("nan"), float("inf")]), {"init": "data", "init_args": [1.0, NAN, INF]}),
        (torch.full((5000,), float("inf")), {"init": "randn"}),
        (torch.tensor([1 + 2j]), {"init": "randn"}),
        (torch.tensor([3, -1]), {"init": "data", "init_args": [3, -1]}),
        (torch.tensor(7), {"init": "data", "init_args": 7}),
        (torch.arange(2, 102), {"init": "randint", "init_args": {"low": 2, "high": 102}}),
        (torch.tensor([5.0, 0.0, 3.0]), {"init": "data", "init_args": [5.0, 0.0, 3.0]}),  # counts, not magnitudes
        (torch.arange(100.0) % 2, {"init": "randint", "init_args": {"low": 0, "high": 2}}),
        (torch.arange(-50.0, 50).to(torch.float8_e4m3fn),
         {"init": "randint", "init_args": {"low": -48, "high": 49}}),
        (torch.tensor([2.0**40, 0.0]), {"init": "uniform", "init_args": {"low": 0.0, "high": 2.0**40}}),
    ],
)  # fmt: skip
def test_what_is_kept_of_the_values(tensor: Any, fill: dict[str, Any]) -> None:
    found = tensor_of(tensor, torch.clone)
    assert repr({key: found[key] for key in ("init", "init_args") if key in found}) == repr(fill)  # NaN, 1 and 1.0


def test_values_are_those_before_the_call_changed_them() -> None:
    numbers = torch.tensor([1, 2])
    assert tensor_of(numbers, torch.Tensor.zero_)["init_args"] == [1, 2]


def test_masks_are_written_or_random_with_note() -> None:
    small, large = torch.tensor([[True, False]]), torch.arange(100) < 30
    assert tensor_of(small, torch.logical_not)["init_args"] == [[1, 0]]
    assert "init" not in tensor_of(large, torch.logical_not)
    (case,) = recorded(lambda: torch.logical_not(large)).cases()
    assert says(case["description"], "capture.input_is_mask_drawn")


X, MASK, NONE = torch.rand(5000), torch.arange(5000) < 70, torch.zeros(4, dtype=torch.bool)
FOUR, EMPTY, EDGES, LARGE = torch.rand(4), torch.rand(0), torch.tensor([0.25, 0.5, 0.75]), torch.eye(65)
WHOLE, IRREPLACEABLE = torch.rand(4, 6), "random values cannot replace"
PART, END = WHOLE[:, :3], WHOLE[1:]


def test_counting_mask_is_written() -> None:
    short, few = X[:200], MASK[:200]
    assert sum(entry_of(lambda: short[few])["inputs"][1]["tensor"]["init_args"]) == 70


@pytest.mark.parametrize(
    ("function", "name", "why"),
    [
        (lambda: X[MASK], "Tensor.__getitem__", "a mask of 5,000 elements, too many to be written"),
        (lambda: FOUR[NONE], "Tensor.__getitem__", "choose no element"),
        (lambda: FOUR.__setitem__(NONE, 1.0), "Tensor.__setitem__", "choose no element"),
        (lambda: PART.as_strided((4, 6), (6, 1)), "Tensor.as_strided", "reach beyond the tensor"),
        (lambda: torch.as_strided(END, (2, 2), (6, 1), storage_offset=0), "as_strided", "reach beyond the tensor"),
        (lambda: torch.as_strided(END, (2, 2), (6, 1), 7), "as_strided", "reach beyond the tensor"),
        (lambda: WHOLE[:, 6:], "getitem", "return no elements"),
        (lambda: torch.linalg.cholesky(LARGE), "linalg.cholesky", f"a matrix or offsets that {IRREPLACEABLE}"),
    ],
)
def test_call_is_left_out_for_its_values(function: Callable[[], object], name: str, why: str) -> None:
    recorder = recorded(function)
    assert recorder.cases() == []
    ((left_out, reason),) = recorder.left_out
    assert left_out == f"torch.{name}"
    assert why in reason


def test_counts_keep_their_sum() -> None:
    """Drawn below one they are all 0 as int32, and so is every sum: a pass would prove nothing."""
    counts = torch.tensor([5.0, 8.0, 6.0])
    entry = entry_of(lambda: torch.cumsum(counts, 0, dtype=torch.int32))
    assert entry["inputs"][0]["tensor"]["init_args"] == [5.0, 8.0, 6.0]


@pytest.mark.parametrize(
    ("function", "place"),
    [
        (lambda: torch.bucketize(torch.rand(5), EDGES), 1),
        (lambda: torch.searchsorted(EDGES, torch.rand(5)), 0),
    ],
)
def test_edges_ascend_as_those_of_the_model(function: Callable[[], object], place: int) -> None:
    case = entries_of(function)[-1]
    assert case["inputs"][place]["tensor"]["init_args"] == [0.25, 0.5, 0.75]
    assert case["inputs"][1 - place]["tensor"]["init"] == "rand"


def test_all_false_mask_is_random() -> None:
    """What changes nothing is refused when it is run."""
    (case,) = recorded(lambda: FOUR.masked_fill(NONE, 1.0)).cases()
    assert "init" not in case["inputs"][1]["tensor"]
    assert says(case["description"], "capture.in_the_model_of")


def test_attention_mask_is_written_out() -> None:
    """One that is drawn may hide every key from a query."""
    q = torch.rand(1, 1, 40, 4)
    mask = torch.ones(40, 40, dtype=torch.bool).tril()
    (case,) = recorded(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)).cases()
    assert case["kwmap"]["attn_mask"]["tensor"]["init_args"][1][:3] == [1, 1, 0]


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda: PART.as_strided((4, 2), (6, 2)), "torch.Tensor.as_strided"),
        (lambda: torch.as_strided(WHOLE, (2, 2), (6, 1), 3), "torch.as_strided"),
        (lambda: torch.as_strided(END, (2, 2), (6, 1)), "torch.as_strided"),
    ],
)
def test_view_within_tensor_is_a_case(function: Callable[[], object], op: str) -> None:
    """A case has the memory between the first and the last element of its tensors alone."""
    assert entry_of(function)["op"] == op


def test_an_empty_tensor_beside_others_has_a_fill() -> None:
    (first, _) = entry_of(lambda: torch.cat([EMPTY, EDGES]))["inputs"][0]["tensor_list"]
    assert (first["shape"], first["init"]) == ([0], "randn")


def test_a_keyword_called_shape_is_no_tensor() -> None:
    entry = entry_of(lambda: torch.reshape(EDGES, shape=(3, 1)))
    assert entry["kwmap"] == {"shape": {"py": "(3, 1)"}}
    assert [tensor["shape"] for tensor in tensor_entries(entry)] == [[3]]


@pytest.mark.parametrize(("kind", "name"), [(bool, "torch.bool"), (int, "torch.int64"), (float, "torch.float64")])
def test_a_type_of_python_is_a_dtype(kind: type, name: str) -> None:
    assert entry_of(lambda: torch.ones(2, dtype=kind))["kwmap"] == {"dtype": name}


def test_structured_matrix_is_written_out() -> None:
    matrix = torch.eye(2) * 4
    (entry,) = entry_of(lambda: torch.linalg.cholesky(matrix))["inputs"]
    assert entry["tensor"]["init_args"] == [[4.0, 0.0], [0.0, 4.0]]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("embedding_bag", lambda: torch.nn.functional.embedding_bag(OFFSETS * 0, torch.rand(2, 3), OFFSETS // 3)),
        ("segment_reduce", lambda: torch.segment_reduce(torch.rand(300, 2), "sum", offsets=OFFSETS)),
        ("repeat_interleave", lambda: torch.repeat_interleave(torch.rand(101), OFFSETS // 100, output_size=102)),
        ("_pack_padded_sequence",
         lambda: torch.nn.utils.rnn.pack_padded_sequence(torch.rand(301, 101, 1), OFFSETS.flip(0) + 1)),
        ("_grouped_mm", lambda: torch.ops.aten._grouped_mm(torch.rand(300, 4), torch.rand(101, 4, 4), OFFSETS.int())),
    ],
)  # fmt: skip
def test_offsets_lengths_and_counts_are_the_models_own(name: str, function: Callable[[], object]) -> None:
    """Drawn ones are illegal, or leave rows that nobody writes."""
    (entry,) = [each for each in entries_of(function) if name in each["op"]]
    given = [*entry["inputs"], *entry.get("kwmap", {}).values()]
    tensors = [each["tensor"] for each in given if isinstance(each, dict) and "tensor" in each]
    assert {each["init"] for each in tensors if "int" in each["dtype"]} == {"data"}


OFFSETS = torch.arange(0, 303, 3)


def test_long_offsets_are_left_out() -> None:
    many, rows, first = torch.arange(5000), torch.rand(7, 3), torch.tensor([0])
    recorder = recorded(lambda: torch.nn.functional.embedding_bag(many * 0, rows, many))
    assert any(f"offsets that {IRREPLACEABLE}" in reason for _, reason in recorder.left_out)
    positions = many % 7
    drawn = entry_of(lambda: torch.nn.functional.embedding_bag(positions, rows, first))
    assert drawn["inputs"][0]["tensor"]["init"] == "randint"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: torch.rand(2, 2).to_sparse().abs(), "not dense"),
        (lambda: torch.vmap(torch.abs)(torch.rand(2, 2)), "cannot be read"),
        (lambda: torch.ones(2).apply_(abs), "a builtin_function_or_method"),
    ],
)
def test_unwritable_argument_is_left_out_with_reason(function: Callable[[], object], why: str) -> None:
    recorder = recorded(function)
    assert any(why in reason for _, reason in recorder.left_out), recorder.left_out


VALUES: list[Any] = [
    1, 1.0, True, None, 1e-5, -0.0, 1e300, float("inf"), "sum", "1", "None", "(1, 2)", "torch.float16", "",
    [1, 2], (1, 2), (1,), (), [], [1.5], [None, 1], ["a"], ..., slice(1, None), (slice(None), ..., None, 2),
    torch.float16, torch.channels_last, torch.strided, 2 + 3j, torch.Size([1, 2]), "a: b", "yes", "é", 2**40, -3,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_read_back_as_it_was(value: Any) -> None:
    """Through the file: what stands there is read as the same argument, also as a keyword's."""
    made = describe_call(NamedCall("torch.abs", (value,), {"k": value}))
    case = {"name": "a", "op": made.op, "inputs": made.inputs, "kwmap": made.kwmap}
    document = parse_plan(text_of_model_file("m", [case], defaults={}).encode(), "m.yaml")
    call = parse_call(document.cases[0]["attributes"]["call"])
    wanted = TorchName(str(value)) if str(value).startswith("torch.") and not isinstance(value, (str, tuple)) else value
    for found in (call.args[0], call.kwargs["k"]):
        assert repr(found) == repr(tuple(wanted) if isinstance(wanted, tuple) else wanted)


# Values that are written out: the fewest digits that give the same bits, a row on each line, and words for a mask.


INFINITE = math.inf
MIN = torch.finfo(torch.float32).min
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("name", FLOATS)
def test_written_values_round_trip_in_dtype(name: str) -> None:
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
        (INFINITE, "float32", "inf"),
        (16777216.0, "float32", "16777216.0"),
    ],
)
def test_number_has_fewest_digits_for_dtype(value: float, name: str, text: str) -> None:
    assert repr(shortest(value, name)) == text


CAUSAL = torch.full((4, 4), -INFINITE).triu(1)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (CAUSAL, "causal (0.0 up to the diagonal, -inf above)"),
        (CAUSAL.expand(2, 1, 4, 4), "causal (0.0 up to the diagonal, -inf above)"),
        (torch.full((2, 4), MIN).triu(3), "causal (0.0 up to diagonal 2, -3.4e+38 above)"),
        (torch.full((4, 4), -INFINITE).triu(2), "0.0 up to diagonal 1, -inf above"),
        (torch.full((4, 4), -INFINITE).tril(-1), "-inf up to diagonal -1, 0.0 above"),
        (torch.ones(4, 4, dtype=torch.bool).tril(), "causal (true up to the diagonal, false above)"),
        (torch.ones(4, 4, dtype=torch.bool).triu(1), "causal (false up to the diagonal, true above)"),
        (torch.ones(5, 5).triu(-1).tril(1) - 1, "a band (0.0 from diagonal -1 to diagonal 1, -1.0 elsewhere)"),
        (torch.tensor([[[0.0, -INFINITE]], [[-INFINITE, 0.0]]]), "0.0 and -inf, the same in every row"),
        (torch.tensor([[0.0, -INFINITE, 0.0], [-INFINITE, 0.0, 0.0]]), "0.0 and -inf"),
        (torch.tensor([0.0, -INFINITE]), "0.0 and -inf"),
        (torch.tensor([0.0, -INFINITE, 1.0]), ""),
        (torch.zeros(3), ""),
    ],
)
def test_a_mask_in_words(mask: Any, words: str) -> None:
    assert words_of_mask(mask) == words


def test_a_note_says_what_order_a_mask_has() -> None:
    scores = torch.randn(2, 4, 4)
    (case,) = recorded(lambda: scores + CAUSAL).cases()
    assert says(case["description"], "capture.input_is_the_model")
    (case,) = recorded(lambda: scores.masked_fill(CAUSAL < 0, 0.0)).cases()[1:]
    assert case["description"].endswith("6 of 16 true: causal (false up to the diagonal, true above)")


@pytest.mark.parametrize("shape", [(1, 1, 16, 16), (2, 3, 16, 16), (40, 40), (600,), (2, 1, 300)])
def test_values_are_written_by_row_and_reread(shape: tuple[int, ...]) -> None:
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
