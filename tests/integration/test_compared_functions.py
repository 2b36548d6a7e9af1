"""``optest check --function m:fast --reference m:slow``: two functions without a descriptor."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import refusal, says

from optest.api.checking import check
from optest.errors import UsageError

NUMPY = """
import numpy as np

def slow(x, weight, eps=1e-6):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight

@np.errstate(all="ignore")
def fast(x: np.ndarray, weight: np.ndarray, eps=1e-6):
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    scale = 1 / np.sqrt(np.einsum("...i,...i->...", wide, wide)[..., None] / x.shape[-1] + wide.dtype.type(eps))
    return (wide * scale * weight).astype(x.dtype)

def zeros(x, weight, eps=1e-6):
    return np.zeros_like(x)

def other_eps(x, weight, eps=1e-6):
    return fast(x, weight, 1e-5)

def no_tail(x, weight, eps=1e-6):
    out = fast(x, weight, eps)
    out[..., x.shape[-1] // 8 * 8 :] = 0
    return out

def cumsum_slow(x: np.ndarray):
    return np.cumsum(x, axis=-1)

def cumsum_fast(x: np.ndarray):
    return np.cumsum(x, axis=-1, dtype=np.promote_types(x.dtype, np.float32)).astype(x.dtype)

def first_row(x: np.ndarray):
    return np.cumsum(np.broadcast_to(x[:1], x.shape), axis=-1) if x.ndim > 1 else np.cumsum(x)

def linear(x: np.ndarray, w: np.ndarray, b: np.ndarray):
    return np.maximum(x @ w.T + b, 0)

def linear_of_rows(x, w, b):
    return np.maximum(x @ w[: len(x)].T + b[: len(x)], 0)

def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray):
    powers = np.exp(q @ k.T / 8 - (q @ k.T / 8).max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)) @ v

def attend_first_keys(q, k, v):
    return attend(q, k[: len(q)], v[: len(q)])

def affine(x: np.ndarray, weight, bias):
    return x @ weight.T + bias

def affine_of_rows(x, weight, bias):
    return x @ weight.T + np.resize(bias[: len(x)], len(weight))

def feed_forward(x: np.ndarray, w1, b1, w2, b2):
    return np.maximum(x @ w1.T + b1, 0) @ w2.T + b2

def feed_forward_of_outputs(x, w1, b1, w2, b2):
    return np.maximum(x @ w1.T + np.resize(b1[: len(w2)], len(w1)), 0) @ w2.T + b2

def rotate(x: np.ndarray, cos, sin):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

def rotated(x, cos, sin):
    return rotate(x, cos[:1], sin[:1])

def rows_of(ids, table):
    return np.asarray(table)[ids]

def taken_rows(ids, table):
    assert table.ndim == 2
    return np.take(table, ids, axis=0)

def grouped(q: np.ndarray, k, v):
    share = q.shape[2] // k.shape[2]
    scores = np.einsum("bshd,bthd->bhst", q, np.repeat(k, share, axis=2))
    return np.einsum("bhst,bthd->bshd", scores, np.repeat(v, share, axis=2))

def grouped_by_remainder(q, k, v):
    share = q.shape[2] // k.shape[2]
    return grouped(q, np.tile(k, (1, 1, share, 1)), np.tile(v, (1, 1, share, 1)))

def first_rows(x: np.ndarray, counts: "LongTensor"):
    return x[: counts.min()]

def summed_in_order(x: np.ndarray):
    total = np.zeros(x.shape[1:], x.dtype)
    for row in x:
        total = total + row
    return total

def tanh(x: np.ndarray):
    return np.tanh(x)

def infinite_end(x):
    return np.concatenate([np.tanh(x[..., :-1]), np.full_like(x[..., :1], np.inf)], axis=-1)

@np.errstate(divide="ignore")
def inverse_distance(x: np.ndarray, y):
    return 1 / np.abs(x - y)

def finite_distance(x, y):
    found = inverse_distance(x, y)
    return np.where(np.isinf(found), x.dtype.type(100), found)

def infinite(x):
    return np.full_like(x, -np.inf)

def of_no_shape(x: np.ndarray):
    raise ValueError("too wide")

def scaled_and_shifted(x: np.ndarray, gamma, beta):
    return x * gamma + beta

def needs_dim(x, dim):
    return x.sum(axis=dim)

def affine(x, bias=None, mask=None):
    y = x if bias is None else x + bias
    return y if mask is None else np.where(mask, y, y.dtype.type(0))

def without_bias(x, bias=None, mask=None):
    return affine(x, None, mask)

def without_mask(x, bias=None, mask=None):
    return affine(x, bias)

def scaled(x: np.ndarray, scale=1.0):
    return x * x.dtype.type(scale)

def scaled_by_two(x: np.ndarray, scale=2.0):
    return x * x.dtype.type(scale)

def moments(x: np.ndarray):
    return {"mean": x.mean(-1), "largest": x.max(-1), "count": float(x.shape[-1]), "none": None}

def moments_in_other_order(x: np.ndarray):
    return dict(reversed(moments(x).items()))

def moments_exchanged(x: np.ndarray):
    return {"mean": x.max(-1), "largest": x.mean(-1), "count": float(x.shape[-1])}

def moments_of_other_names(x: np.ndarray):
    return {"a": float(x.shape[-1]), "b": x.max(-1), "c": x.mean(-1)}

def offset(x: np.ndarray, unknown=None):
    return x

def quantised(x: np.ndarray):
    scale = np.abs(x).max(-1, keepdims=True, initial=1e-3) / x.dtype.type(127)
    return np.rint(x / scale).astype(np.int8), scale

def quantised_in_float32(x: np.ndarray):
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    factor = 127 / np.abs(wide).max(-1, keepdims=True, initial=1e-3)
    return np.rint(wide * factor).astype(np.int8), (1 / factor).astype(x.dtype)

def quantised_in_steps(x: np.ndarray):
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    scale = np.abs(wide).max(-1, keepdims=True, initial=1e-3) / np.float32(127)
    return np.rint(wide / scale).astype(np.int8), scale.astype(x.dtype)

def quantised_downwards(x: np.ndarray):
    scale = np.abs(x).max(-1, keepdims=True, initial=1e-3) / x.dtype.type(127)
    return np.trunc(x / scale).astype(np.int8), scale

def hundreds(x: np.ndarray):
    return (x * x.dtype.type(150)).astype(np.int64)

def halved_hundreds(x: np.ndarray):
    return hundreds(x) // 2

def above_mean(x: np.ndarray):
    return x > x.mean(-1, keepdims=True)

def above_mean_of_all(x: np.ndarray):
    return x > x.mean()

def largest_of_squares(x: np.ndarray):
    return (x * x).argmax(-1) if x.shape[-1] else x.sum(-1).astype(np.int64)

def largest_of_sizes(x: np.ndarray):
    return np.abs(x).argmax(-1) if x.shape[-1] else x.sum(-1).astype(np.int64)

def one(x: np.ndarray):
    return x == 1

def nothing_at_all(x: np.ndarray):
    return x != x

def floor(x: np.ndarray):
    return np.floor(np.clip(x, -999, 999)).astype(np.int32)

def below(x: np.ndarray):
    return (np.ceil(np.clip(x, -999, 999)) - 1).astype(np.int32)

def hashed(index: np.ndarray):
    return index.astype(np.int64) * 0x1E3779B97F4A7C15

def hashed_in_float64(index: np.ndarray):
    return hashed(index).astype(np.float64).astype(np.int64)

def largest(x: np.ndarray):
    return x.argmax(-1) if x.shape[-1] else x.sum(-1).astype(np.int64)

def store(row: np.ndarray, cache: np.ndarray, slots):
    for at, slot in enumerate(slots.tolist()):
        if slot >= 0:
            cache[slot] = row[at]

def stored(row: np.ndarray, cache, slots):
    cache[slots[slots >= 0]] = row[slots >= 0]

def stored_twice(row: np.ndarray, cache, slots):
    stored(row, cache, slots)
    row *= 2

def stored_elsewhere(row: np.ndarray, cache, slots):
    cache[slots - 1] = row

def stores_nothing(row: np.ndarray, cache, slots):
    cache.sum()

def stored_and_returned(row: np.ndarray, cache, slots):
    store(row, cache, slots)
    return cache

def stored_in_a_copy(row: np.ndarray, cache, slots):
    return stored_and_returned(row, cache.copy(), slots)

def decay(x: np.ndarray, state):
    state *= 0.5
    state += x
    return state * 2

def decayed(x: np.ndarray, state):
    state[...] = state * state.dtype.type(0.5) + x
    return state * 2

def decayed_in_a_copy(x: np.ndarray, state):
    return decayed(x, state.copy())
"""
TORCH = """
import torch

def reshape_and_cache_slowly(key, value, key_cache, value_cache, slot_mapping):
    size = key_cache.shape[1]
    for at, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            key_cache[slot // size, slot % size] = key[at]
            value_cache[slot // size, slot % size] = value[at]

def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    size, known = key_cache.shape[1], slot_mapping >= 0
    slots = slot_mapping[known]
    key_cache[slots // size, slots % size] = key[known]
    value_cache[slots // size, slots % size] = value[known]

def reshape_and_cache_keys(key, value, key_cache, value_cache, slot_mapping):
    reshape_and_cache(key, key, key_cache, value_cache, slot_mapping)

def reshape_and_cache_without_mask(key, value, key_cache, value_cache, slot_mapping):
    size = key_cache.shape[1]
    key_cache[slot_mapping // size, slot_mapping % size] = key
    value_cache[slot_mapping // size, slot_mapping % size] = value

def slow(logits, target):
    rows = torch.log(torch.softmax(logits, -1))
    return -rows[torch.arange(len(target)), target].mean()

def fast(logits, target):
    return torch.nn.functional.cross_entropy(logits.float(), target).to(logits.dtype)

def wrong(logits, target):
    return torch.nn.functional.cross_entropy(logits.float(), target, label_smoothing=0.01).to(logits.dtype)

def log_of_squares(x: torch.Tensor):
    return torch.log(1 + x * x)

def deviation(x: torch.Tensor):
    return x.std(-1) if x.shape[-1] > 1 else x[..., 0] * torch.nan

def nothing(x: torch.Tensor):
    return x * torch.nan

def loss(pred, target):
    return (pred - target).abs().mean()

def loss_of_whole(pred, target):
    return (pred - target.long()).abs().mean()

def gelu(x: torch.Tensor):  # torch's of infinity is NaN in float32, and infinity in float64
    return torch.nn.functional.gelu(x)

def gelu_that_clips(x: torch.Tensor):
    return torch.nn.functional.gelu(x.clamp(-10, 10))

def total(x: torch.Tensor):
    return x.sum(-1)

def total_of_1025(x: torch.Tensor):
    return x[..., :1025].sum(-1)

def ragged(x, lengths):
    mask = torch.arange(x.shape[1])[None] < lengths[:, None]
    return torch.where(mask, x, 0).sum(1)

def ragged_one_more(x, lengths):
    mask = torch.arange(x.shape[1])[None] <= lengths[:, None]
    return torch.where(mask, x, 0).sum(1)

def largest_of_ragged(x, kv_len: "torch.LongTensor"):  # of at least one element
    return torch.stack([row[:end].max() for row, end in zip(x, kv_len.tolist())])

def taken(table, ids):
    return table[ids] * 2

def taken_of_256(table, ids):
    return table[ids.to(torch.uint8).long()] * 2

def segments(x, offsets):
    ends = [*offsets.tolist(), len(x)]
    return torch.stack([x[start:end].sum(0) for start, end in zip(ends, ends[1:])])

def segments_of_two(x, offsets):
    return segments(x, offsets) if len(offsets) < 3 else segments(x, torch.cat((offsets[:2], offsets[:-2])))

def written(cache, row, slot_mapping):
    return cache.index_copy(0, slot_mapping, row)

def written_in_reverse(cache, row, slot_mapping):  # alike if all slots differ
    return cache.index_copy(0, slot_mapping.flip(0), row.flip(0))

def where(x, keep: torch.BoolTensor, pos_weight):
    return torch.where(keep, x * pos_weight, 0)

def blend(x, alpha=1.0, eps=1e-6, p=0.5, training=False, block_size=64):
    return torch.nn.functional.dropout(x * alpha / (x.abs() + eps), p, training)

def blend_by_default(x, alpha=1.0, eps=1e-6, p=0.5, training=False, block_size=64):
    return x / (x.abs() + 1e-6)

def lerp(a, b, alpha=0.3, *, most=100.0):
    return (a * (1 - alpha) + b * alpha).clamp(max=most)

def lerp_by_default(a, b, alpha=0.3, *, most=100.0):
    return lerp(a, b, most=most)

def lerp_without_most(a, b, alpha=0.3, *, most=100.0):
    return lerp(a, b, alpha)

def lerp_of_two(a, b):
    return lerp(a, b)

def rms(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(24))

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, 1e-6)

norm = Norm()
"""
JAX = """
import jax
import jax.numpy as jnp

def slow(x, dim=-1):
    powers = jnp.exp(x - x.max(axis=dim, keepdims=True))
    return powers / powers.sum(axis=dim, keepdims=True)

def fast(x, dim=-1):
    return jax.nn.softmax(x.astype(jnp.float32), axis=dim).astype(x.dtype)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("pair_numpy", NUMPY), ("pair_torch", TORCH), ("pair_jax", JAX)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(fast: str, slow: str, **options: Any) -> tuple[Mapping[str, int], Any, str]:
    out = io.StringIO()
    given = {"function": (fast,), "reference": slow, "isolate": "none", "no_color": True, **options}
    report = check(given, stream=out)
    return Counter(each.status.value for each in report.results), report, out.getvalue()


SHAPES = ("x=6x40", "weight=40")


@pytest.mark.usefixtures("folder")
def test_honest_functions_of_numpy_pass() -> None:
    counts, report, text = compared("pair_numpy:fast", "pair_numpy:slow", shape=SHAPES)
    assert counts.keys() == {"passed"}, text
    calls = [tuple(each.spec.shape for each in case.inputs) for case in cases_of(report)]
    assert ((6, 40), (40,)) in calls
    assert all(x[-1] == weight[0] for x, weight in calls)  # 40 of both is one dimension
    assert compared("pair_numpy:cumsum_fast", "pair_numpy:cumsum_slow", tier="smoke")[0].keys() == {"passed"}


def cases_of(report: Any) -> Any:
    from optest.core.wire import case_from_wire
    from optest.operators import operators

    return [case_from_wire(each.case, operators.get) for each in report.results]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("wrong", [pytest.param("infinite_end", marks=pytest.mark.heavy), "infinite"])
def test_infinity_is_near_to_no_number(wrong: str) -> None:
    counts, _, text = compared(f"pair_numpy:{wrong}", "pair_numpy:tanh", case_set=("ordinary", "dtypes"))
    assert counts.keys() == {"failed"}, text


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_no_number_is_near_to_infinity() -> None:
    pair = "pair_numpy:inverse_distance"
    assert "failed" not in compared(pair, pair, dtype="float16")[0]
    counts, _, text = compared("pair_numpy:finite_distance", pair, dtype="float16")
    assert counts["failed"], text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "wrong", [*(pytest.param(each, marks=pytest.mark.heavy) for each in ("zeros", "other_eps")), "no_tail"]
)
def test_wrong_functions_of_numpy_fail(wrong: str) -> None:
    counts, report, text = compared(f"pair_numpy:{wrong}", "pair_numpy:slow", shape=SHAPES, dtype="float32")
    assert counts["failed"] > 3, text
    assert report.exit_status == 1
    assert f"--function function.pair_numpy:slow=pair_numpy:{wrong}" in text


@pytest.mark.usefixtures("folder")
def test_shapes_are_sought_and_the_command_fails_again() -> None:
    counts, report, _ = compared(
        "pair_numpy:first_row", "pair_numpy:cumsum_slow", dtype="float32", case_set=("ordinary",)
    )
    assert counts["failed"]
    failed = next(each for each in report.results if each.status.value == "failed")
    from optest.cli import main

    assert main([*shlex.split(failed.repro)[1:], "--isolate", "none"]) == 1


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_sought_sizes_are_independent() -> None:
    given = {"case_set": ("ordinary",), "dtype": "float32"}
    wrong_ones = {"linear": "linear_of_rows", "affine": "affine_of_rows", "feed_forward": "feed_forward_of_outputs"}
    wrong_ones |= {"attend": "attend_first_keys", "rotate": "rotated", "grouped": "grouped_by_remainder"}
    for slow, wrong in wrong_ones.items():
        assert compared(f"pair_numpy:{slow}", f"pair_numpy:{slow}", **given)[0].keys() == {"passed"}
        counts, _, text = compared(f"pair_numpy:{wrong}", f"pair_numpy:{slow}", **given)
        assert counts["failed"] > 2 * counts["passed"], text
    assert compared("pair_numpy:taken_rows", "pair_numpy:rows_of", **given)[0].keys() == {"passed"}
    pair = "pair_numpy:scaled_and_shifted"
    assert compared(pair, pair, case_set=("ordinary",))[0].keys() == {"passed"}  # beta is a tensor


@pytest.mark.usefixtures("folder")
def test_calls_that_show_nothing_or_take_long_are_left_out() -> None:
    outcome, _, text = compared("pair_numpy:first_rows", "pair_numpy:first_rows", shape=("x=4x5", "counts=3"))
    assert outcome.keys() == {"passed", "skipped"}, text
    report, text = compared("pair_numpy:summed_in_order", "pair_numpy:summed_in_order", case_set=("sizes",))[1:]
    longest = [max(case.inputs[0].spec.shape) for case in cases_of(report)]
    assert says(text, "integration.dimension_of_not_its")
    assert max(longest) > 4099  # columns
    assert max(case.inputs[0].spec.shape[0] for case in cases_of(report)) == 1025


@pytest.mark.usefixtures("folder")
def test_what_is_missing_is_said() -> None:
    with refusal(UsageError, "integration.no_default_for_dim"):
        compared("pair_numpy:cumsum_fast", "pair_numpy:needs_dim")
    with refusal(UsageError, "integration.attr_weight_is_for"):
        compared("pair_numpy:fast", "pair_numpy:slow", attr=("weight=3",))
    with refusal(UsageError, "integration.not_given_for_weight"):
        compared("pair_numpy:fast", "pair_numpy:slow", shape=("x=6x40",))
    with pytest.raises(UsageError, match="expected one of x"):
        compared("pair_numpy:cumsum_fast", "pair_numpy:cumsum_slow", shape=("y=6x40",))
    with refusal(UsageError, "integration.slow_does_not_take"):
        compared("pair_numpy:fast", "pair_numpy:slow", shape=("x=6x40", "weight=3"))
    with refusal(UsageError, "integration.given_float_pair_numpy"):
        compared("pair_numpy:of_no_shape", "pair_numpy:of_no_shape")
    text = compared("pair_numpy:of_no_shape", "pair_numpy:cumsum_slow", tier="smoke")[2]
    assert says(text, "integration.fail_if_it_is")
    with pytest.raises(UsageError, match="--shape needs a --function"):
        check({"backend": "numpy", "op": ("relu",), "shape": ("input0=4",)})
    counts, _, _ = compared("pair_numpy:needs_dim", "pair_numpy:needs_dim", attr=("dim=-1",), tier="smoke")
    assert counts.keys() == {"passed"}


@pytest.mark.usefixtures("folder")
def test_a_stated_tolerance_decides() -> None:
    wide = compared(
        "pair_numpy:other_eps", "pair_numpy:slow", shape=SHAPES, tier="smoke", tolerance="rtol=0.1,atol=0.1"
    )
    assert wide[0].keys() == {"passed"}
    assert all("tolerance" in each.verdict.measures[0].rule.name for each in wide[1].results if each.verdict.measures)


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_functions_of_torch_with_labels() -> None:
    pytest.importorskip("torch")
    options = {"dtype": "float32", "case_set": ("ordinary",), "shape": ("logits=5x9", "target=5")}
    counts, _, printed = compared("pair_torch:fast", "pair_torch:slow", **options)
    assert counts.keys() == {"passed"}
    assert "target int64 0..8" in printed
    assert compared("pair_torch:wrong", "pair_torch:slow", **options)[0]["failed"]
    options["shape"] = ("pred=5x9", "target=5x9")  # as large as the first tensor: no labels
    assert compared("pair_torch:loss_of_whole", "pair_torch:loss", **options)[0]["failed"]


def of_torch(fast: str, slow: str, **options: Any) -> tuple[set[str], str]:
    counts, _, text = compared(
        f"pair_torch:{fast}",
        f"pair_torch:{slow}",
        **{"dtype": "float32", "case_set": ("ordinary",), **options},
    )
    return set(counts), text


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_integers_reach_what_the_slow_function_takes() -> None:
    pytest.importorskip("torch")
    shape: tuple[str, ...] = ("x=4x9", "lengths=4")
    outcome, text = of_torch("ragged", "ragged", shape=shape)
    assert outcome == {"passed"}, text
    assert "lengths int64 0..9" in text
    assert "failed" in of_torch("ragged_one_more", "ragged", shape=shape, dtype="float32,int64")[0]
    outcome, text = of_torch("largest_of_ragged", "largest_of_ragged", shape=("x=4x9", "kv_len=4"))
    assert outcome == {"passed"}, text
    assert "kv_len int64 1..9" in text
    shape = ("table=300x4", "ids=6")
    outcome, text = of_torch("taken", "taken", shape=shape)
    assert outcome == {"passed"}, text
    assert "ids int64 0..299" in text
    assert "failed" in of_torch("taken_of_256", "taken", shape=shape)[0]
    assert "failed" in of_torch("segments_of_two", "segments", shape=("x=20x3", "offsets=5"))[0]
    outcome, text = of_torch("written_in_reverse", "written", shape=("cache=16x3", "row=6x3", "slot_mapping=6"))
    assert outcome == {"passed"}, text
    outcome, text = of_torch("where", "where", shape=("x=4x9", "keep=4x9", "pos_weight=9"), case_set=("ordinary",))
    assert outcome == {"passed"}, text
    assert says(text, "integration.keep_bool_by_name")


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_arguments_that_the_reference_changes_are_outputs() -> None:
    options: dict[str, Any] = {"shape": ("row=6x3", "cache=16x3", "slots=6"), "tier": "smoke"}
    for fast, slow, outcome in (
        ("stored", "store", None),
        ("store", "store", None),
        ("stored_elsewhere", "store", "VALUE"),
        ("stored_twice", "store", "INPUT_MUTATED"),
        ("stores_nothing", "store", "VALUE"),
        ("stored", "stored_and_returned", None),
        ("stored_in_a_copy", "stored_and_returned", None),
        ("stored_elsewhere", "stored_and_returned", "VALUE"),
    ):
        _, report, text = compared(f"pair_numpy:{fast}", f"pair_numpy:{slow}", **options)
        assert {each.reason and each.reason.value for each in report.results} == {outcome}, text
        assert report.exit_status == int(outcome is not None)
        assert "@optest.kernel(" not in text
        assert outcome != "INPUT_MUTATED" or "the function of --reference changes only cache" in text
    text = compared("pair_numpy:stored_elsewhere", "pair_numpy:stored_and_returned", isolate="process", **options)[2]
    assert "itself is wrong here" not in text
    options["shape"] = ("x=6x3", "state=6x3")
    for fast, outcomes in (("decayed", {"passed"}), ("decayed_in_a_copy", {"failed"})):
        counts, _, text = compared(f"pair_numpy:{fast}", "pair_numpy:decay", **options)
        assert counts.keys() == outcomes, text
    for shape in (("row=6x3", "cache=16x3", "slots=6"), ()):
        with refusal(UsageError, "integration.returns_nothing_and_changes"):
            compared("pair_numpy:stored", "pair_numpy:stores_nothing", shape=shape)


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_functions_of_torch_work_in_place() -> None:
    pytest.importorskip("torch")
    shape = ("key=6x2x8", "value=6x2x8", "key_cache=4x4x2x8", "value_cache=4x4x2x8", "slot_mapping=6")
    outcome, text = of_torch("reshape_and_cache", "reshape_and_cache_slowly", shape=shape, tier="smoke")
    assert outcome == {"passed"}, text
    assert "slot_mapping int64 -1..7" in text
    for wrong in ("reshape_and_cache_keys", "reshape_and_cache_without_mask"):
        outcome, text = of_torch(wrong, "reshape_and_cache_slowly", shape=shape, tier="smoke")
        assert outcome == {"failed"}, text


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_numbers_are_varied_where_they_make_a_difference() -> None:
    pytest.importorskip("torch")
    outcome, text = of_torch("blend", "blend", case_set=("attributes",))
    assert outcome == {"passed"}, text
    assert says(text, "integration.block_size_only_at")
    assert says(text, "integration.not_training_true_two")
    text = of_torch("blend_by_default", "blend", case_set=("attributes",))[1]
    assert "alpha=2.0" in text
    assert "eps=0.125" in text
    shape = ("a=4x32", "b=4x32")
    for fast, outcomes, words in (
        ("lerp", {"passed"}, ""),
        ("lerp_by_default", {"passed", "failed"}, "as if alpha were 0.3, its default, not 0.6"),
        ("lerp_without_most", {"passed", "failed"}, "as if most were 100.0, its default, not 1.0"),
        ("lerp_of_two", {"skipped"}, "takes no alpha"),
    ):
        outcome, text = of_torch(fast, "lerp", case_set=("attributes",), shape=shape)
        assert (outcome, words in text) == (outcomes, True), text


@pytest.mark.usefixtures("folder")
def test_sizes_and_dtypes_of_weights_are_kept() -> None:
    pytest.importorskip("torch")
    sets = ("ordinary", "dtypes", "layouts", "sizes")
    for fast, slow in (("norm", "rms"), ("rms", "norm")):
        outcome, text = of_torch(fast, slow, shape=("x=4x24",), case_set=sets, dtype=())
        assert outcome == {"passed"}, text
        assert says(text, "integration.kept_size_of_the")
        with pytest.raises(UsageError, match="specify it: --shape x=8x24"):
            of_torch(fast, slow)


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_a_function_of_torch_passes_against_itself_in_float32() -> None:
    pytest.importorskip("torch")
    options = {"dtype": "float32", "case_set": ("ordinary",)}
    counts, _, text = compared("pair_torch:log_of_squares", "pair_torch:log_of_squares", **options)
    assert counts.keys() == {"passed"}, text
    options["case_set"] = ("special",)
    counts, _, text = compared("pair_torch:gelu", "pair_torch:gelu", **options)
    assert counts.keys() == {"passed"}, text
    assert compared("pair_torch:gelu_that_clips", "pair_torch:gelu", **options)[0]["failed"]


@pytest.mark.usefixtures("folder")
def test_cases_that_show_nothing_are_skipped_unless_most_do() -> None:
    pytest.importorskip("torch")
    counts, report, text = compared("pair_torch:deviation", "pair_torch:deviation", dtype="float32")
    assert counts.keys() == {"passed", "skipped"}, text
    assert report.exit_status == 0
    assert "inconclusive" in text
    counts, report, text = compared("pair_torch:nothing", "pair_torch:nothing", dtype="float32", seed=1)
    assert "failed" not in counts
    assert report.exit_status == 1
    assert "cases are inconclusive" in text


@pytest.mark.usefixtures("folder")
def test_functions_of_torch_get_long_dimensions() -> None:
    pytest.importorskip("torch")
    options = {"dtype": "float32", "case_set": ("sizes",)}
    assert compared("pair_torch:total_of_1025", "pair_torch:total", **options)[0]["failed"]


@pytest.mark.usefixtures("folder")
def test_optional_inputs_are_given_or_named() -> None:
    options = {"dtype": "float32", "case_set": ("ordinary",)}
    assert compared("pair_numpy:affine", "pair_numpy:affine", **options)[0].keys() == {"passed"}
    assert compared("pair_numpy:without_bias", "pair_numpy:affine", **options)[0].keys() == {"passed", "failed"}
    assert compared("pair_numpy:without_mask", "pair_numpy:affine", **options)[0].keys() == {"passed", "failed"}
    counts, _, text = compared("pair_numpy:offset", "pair_numpy:offset", **options)
    assert counts.keys() == {"passed"}
    assert "never with unknown" in text
    assert "calls without elements" in text
    assert "only x of rank 2" in text


@pytest.mark.usefixtures("folder")
def test_another_default_of_the_function_fails() -> None:
    options = {"dtype": "float32", "tier": "smoke"}
    assert compared("pair_numpy:scaled", "pair_numpy:scaled", **options)[0].keys() == {"passed"}
    assert compared("pair_numpy:scaled_by_two", "pair_numpy:scaled", **options)[0].keys() == {"failed"}


@pytest.mark.usefixtures("folder")
def test_outputs_go_by_the_keys_of_the_reference() -> None:
    options = {"dtype": "float32", "tier": "smoke"}
    for name, status in (("", "passed"), ("_in_other_order", "passed"), ("_exchanged", "failed")):
        assert compared(f"pair_numpy:moments{name}", "pair_numpy:moments", **options)[0].keys() == {status}
    counts, _, text = compared("pair_numpy:moments_of_other_names", "pair_numpy:moments", **options)
    assert counts.keys() == {"failed"}
    assert says(text, "integration.but_should_be_count")


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_halves_of_a_step_are_what_arithmetic_makes_of_them() -> None:
    options = {"case_set": ("layouts", "ordinary"), "dtype": "float16", "shape": ("x=8x64",)}
    for seed in range(1, 9):
        outcomes, _, text = compared("pair_numpy:quantised_in_steps", "pair_numpy:quantised", seed=seed, **options)
        assert outcomes.keys() == {"passed"}, text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("slow", "right", "wrong"),
    [
        ("quantised", "quantised_in_float32", "quantised_downwards"),
        pytest.param("hundreds", "hundreds", "halved_hundreds", marks=pytest.mark.heavy),
        pytest.param("above_mean", "above_mean", "above_mean_of_all", marks=pytest.mark.heavy),
        pytest.param("largest_of_squares", "largest_of_sizes", "largest", marks=pytest.mark.heavy),
    ],
)
def test_whole_numbers_of_rounded_ones(slow: str, right: str, wrong: str) -> None:
    options = {"case_set": ("ordinary",)}
    counts, report, text = compared(f"pair_numpy:{right}", f"pair_numpy:{slow}", **options)
    assert counts.keys() == {"passed"}, text
    counts, report, text = compared(f"pair_numpy:{wrong}", f"pair_numpy:{slow}", **options)
    assert counts["failed"] > len(report.results) // 2, text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("slow", "wrong"),
    [
        ("one", "nothing_at_all"),
        ("floor", "below"),
        pytest.param("hashed", "hashed_in_float64", marks=pytest.mark.heavy),
    ],
)
def test_whole_numbers_without_arithmetic_have_one_right_value(slow: str, wrong: str) -> None:
    assert compared(f"pair_numpy:{slow}", f"pair_numpy:{slow}")[0].keys() == {"passed"}
    assert compared(f"pair_numpy:{wrong}", f"pair_numpy:{slow}")[0]["failed"]


@pytest.mark.usefixtures("folder")
def test_functions_of_jax() -> None:
    pytest.importorskip("jax")
    from optest.operators import operators

    descriptor, x = operators.get("function.pair_jax:slow"), np.linspace(-3, 3, 12, dtype=np.float16).reshape(3, 4)
    (expected,) = descriptor.reference([x], {"dim": -1})
    powers = np.exp(x.astype(np.float64))
    assert expected.dtype.name == "float16"
    assert np.allclose(expected.values, powers / powers.sum(-1, keepdims=True), rtol=1e-14)
    rounded = np.asarray(expected.values, np.float16)
    one, other = (
        descriptor.alternatives([x], {"dim": -1}, [each])[0].mask for each in (rounded, rounded * np.float16(1.1))
    )
    assert one.all()
    assert not other.any()


def test_traced_calls_of_jax_have_the_shapes_of_real_ones() -> None:
    jnp = pytest.importorskip("jax.numpy")
    from optest.jax.backend import call_with_arrays

    def untraceable(arrays: Any) -> Any:
        return [jnp.concatenate([each[each > 0] for each in arrays])]  # as many elements as its inputs have values

    x = np.arange(-3, 5, dtype=np.float16)
    for function in (lambda arrays: [arrays[0].astype("float64") * 2, arrays[0][:, None] > 1], untraceable):
        real, traced = (call_with_arrays(function, [x], is_traced=traced) for traced in (False, True))
        assert [(each.shape, each.dtype) for each in real] == [(each.shape, each.dtype) for each in traced]
