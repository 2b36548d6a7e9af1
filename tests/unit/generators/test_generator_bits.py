"""The bits: golden forever, dependent on nothing but (case key, path, index), and random enough."""

from __future__ import annotations

import hashlib
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest

from optest.generators import draws
from optest.generators.counter import BLOCK_WORDS, Stream, words
from optest.generators.draws import _below
from optest.generators.normal import normal_table
from optest.numerics import bits
from optest.spec import dtype as dtype_called

COUNT = 1 << 16

GOLDEN_WORDS = [
    "d732e4670cb9ce07",
    "4a40ba2d03d62c22",
    "a704a85115832d0f",
    "626f635c7fd77750",
    "311bbf7c7739bf48",
]
GOLDEN_HASH = "91179b891b1276d2170f111b39bf81147948a3ea1365509a2f40323e917c3ba9"
GOLDEN_TABLE = "58af975d3dbdb0f897e78631d2d6668dad01b6cb4c280cea8f3dd02a5ede51d3"


def all_words(key: str, path: str, count: int = COUNT) -> np.ndarray:
    return np.concatenate([block.copy() for block in words(Stream(key, path), count)])


def test_golden_words_and_table() -> None:
    """These never change: a case draws the same tensors in every version of optest and NumPy."""
    got = all_words("k1:00", "input0", 8201)
    assert [f"{word:016x}" for word in got[[0, 1, 7, 8, 9]]] == GOLDEN_WORDS
    assert hashlib.sha256(got.astype("<u8").tobytes()).hexdigest() == GOLDEN_HASH
    assert hashlib.sha256(normal_table("float64").astype("<f8").tobytes()).hexdigest() == GOLDEN_TABLE


def test_a_prefix_is_a_prefix() -> None:
    """Word i is the same however many are asked for, across the hashed head and the ends of blocks."""
    whole = all_words("k1:ab", "input1", 3 * BLOCK_WORDS)
    for count in (1, 7, 8, 9, 100, BLOCK_WORDS - 1, BLOCK_WORDS, BLOCK_WORDS + 1, 2 * BLOCK_WORDS + 5):
        assert (all_words("k1:ab", "input1", count) == whole[:count]).all()


@cache
def streams() -> dict[str, np.ndarray]:
    """Neighbouring counters; and one word each of many neighbouring keys, near the head and further on."""
    by_key = [all_words(f"k1:{index:032x}", "input0", 12) for index in range(20_000)]
    return {
        "counters": all_words("k1:7", "input0"),
        "keys, hashed head": np.array([each[0] for each in by_key]),
        "keys, mixed tail": np.array([each[9] for each in by_key]),
        "paths": np.array([all_words("k1:7", f"input{index}", 10)[9] for index in range(20_000)]),
    }


@pytest.fixture(scope="module", params=["counters", "keys, hashed head", "keys, mixed tail", "paths"])
def sample(request: pytest.FixtureRequest) -> np.ndarray:
    return streams()[request.param]


SIGMAS = 5.0


def test_every_bit_is_set_half_of_the_time(sample: np.ndarray) -> None:
    ones = np.unpackbits(sample.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=float)
    z = (ones - sample.size / 2) / np.sqrt(sample.size / 4)
    assert np.abs(z).max() < SIGMAS


def test_neighbours_do_not_resemble_each_other(sample: np.ndarray) -> None:
    flips = np.unpackbits((sample[1:] ^ sample[:-1]).view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=float)
    z = (flips - (sample.size - 1) / 2) / np.sqrt((sample.size - 1) / 4)
    assert np.abs(z).max() < SIGMAS
    unit = sample / 2.0**64 - 0.5
    for lag in (1, 2, 4, 256):
        correlation = np.mean(unit[lag:] * unit[:-lag]) * 12
        assert abs(correlation) * np.sqrt(sample.size) < SIGMAS


def test_every_byte_is_as_frequent(sample: np.ndarray) -> None:
    for position in range(8):
        counts = np.bincount(sample.view(np.uint8).reshape(-1, 8)[:, position], minlength=256)
        expected = sample.size / 256
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - 255) < SIGMAS * np.sqrt(2 * 255)


def test_pairs_of_lanes_fill_the_plane() -> None:
    """Neighbouring 16-bit lanes, as normal draws use them, in 64 by 64 cells."""
    lanes = all_words("k1:3", "input0", 1 << 18).view("<u2") >> 10
    for lag in (1, 2, 3, 4):
        cells = np.bincount(lanes[lag:].astype(int) * 64 + lanes[:-lag], minlength=4096)
        expected = cells.sum() / 4096
        chi_square = ((cells - expected) ** 2 / expected).sum()
        assert abs(chi_square - 4095) < SIGMAS * np.sqrt(2 * 4095)


def test_streams_differ() -> None:
    first = all_words("k1:7", "input0")
    for key, path in (("k1:7", "input1"), ("k1:8", "input0"), ("k1:7", "input0#special")):
        other = all_words(key, path)
        shared = np.unpackbits((first ^ other).view(np.uint8)).mean()
        assert abs(shared - 0.5) < 0.005
        assert not np.intersect1d(first, other).size


def test_the_table_is_the_normal_distribution() -> None:
    table, normal = normal_table("float64"), NormalDist()
    assert table.shape == (65536,)
    for index in (0, 1, 100, 4914, 4915, 4916, 20_000, 32_767, 40_000, 65_535):
        assert table[index] == pytest.approx(normal.inv_cdf((index + 0.5) / 65536), rel=1e-14)
    assert (np.diff(table) > 0).all()
    assert (table == -table[::-1]).all()
    assert normal_table("float32").dtype == np.float32


def test_one_bit_of_the_counter_changes_half_of_the_word() -> None:
    """Avalanche: each output bit flips with probability 1/2 for each flipped bit of the index."""
    tail = all_words("k1:5", "input0", 1 << 16)
    index = np.arange(1 << 15, 3 << 14)
    for bit in range(14):
        flips = np.unpackbits((tail[index] ^ tail[index ^ (1 << bit)]).view(np.uint8).reshape(-1, 8), axis=1)
        share = flips.mean(axis=0)
        # Every pair is met from both sides, so half as many count.
        assert np.abs(share - 0.5).max() < SIGMAS * 0.5 / np.sqrt(index.size / 2), bit


@pytest.mark.parametrize("total", [2**32 + 1, 3 * 2**40 + 7, 2**63, 2**64 - 1, 2**64])
def test_numbers_below_a_large_total_are_the_upper_half_of_a_product(total: int) -> None:
    block = all_words("k1:6", "input0", 500)
    assert _below(total, block).tolist() == [(int(word) * total) >> 64 for word in block]


WORDS = (1 << 20) + 3 * (1 << 16) + 7


DRAWS = {
    "uniform bfloat16": draws.uniform(dtype_called("bfloat16"), -1.0, 1.0, None),
    "uniform bfloat16, folded": draws.uniform(dtype_called("bfloat16"), -3.0, 5.0, ((-2.0, -0.5), (0.5, 2.0))),
    "uniform float16": draws.uniform(dtype_called("float16"), 0.0, 1.0, None),
    "uniform float32": draws.uniform(dtype_called("float32"), -1.0, 1.0, None),
    "uniform float64": draws.uniform(dtype_called("float64"), -1.0, 1.0, None),
    "uniform float8": draws.uniform(dtype_called("float8_e4m3fn"), -1.0, 1.0, None),
    "normal bfloat16": draws.normal(dtype_called("bfloat16"), None, None, None),
    "normal float32": draws.normal(dtype_called("float32"), None, None, None),
    "normal float16, stated": draws.normal(dtype_called("float16"), 0.5, 2.0, ((-4.0, 4.0),)),
    "normal int32": draws.normal(dtype_called("int32"), 3.0, 20.0, ((-100, 100),)),
    "integers": draws.integers(dtype_called("int64"), ((-5, 1000),)),
    "booleans": draws.booleans(dtype_called("bool"), only_true=False),
}


GOLDEN = {
    "uniform bfloat16": "7834e424db0959409ca9add345d19fd2eb55a77c89b3b113e86570f486f48a03",
    "uniform bfloat16, folded": "e5eb40e280bdad5641d2a3be7a49f4967f0f17aa35fba0f3128c65f4613b746a",
    "uniform float16": "1d9c1cc7719e136bd5a8024ff7421eb5b5c08b2384b43496fa55284587270ac6",
    "uniform float32": "acf23ce0cb619cfe699b24be68ebf0226c0eaf0cb381b7d1df65e3f0b1976853",
    "uniform float64": "dd68dfcee2ad23d99f29b2edc7388e9860a8b6d54e38b3557096563a7d40f617",
    "uniform float8": "5d53bcb73e2fd0a821d84d7c6a07e8f9fd2281bd7607c46a501c2d7703c9ef6b",
    "normal bfloat16": "cd4631fba0d507226b7c7fb9f392a739d6a571a4deb272d81ff88708fdca6311",
    "normal float32": "90073aa06839fc4ef22ae4f3b64e361786c92d82292868dbe727164af7dcc17a",
    "normal float16, stated": "dce66dc36c78a99423f4613f168bbe2d9c75f4a3179e3bedf4204469ebe5d27d",
    "normal int32": "95b121119b6cfd442d4459166f4902a44e03d5d468270751467d08039a27b362",
    "integers": "17a9e51bbae2b8ec5c0c1bd5b72b0d3a6330ff69855033ec734324b3865b8c94",
    "booleans": "314be0a43323ce660ad99d27988c7bfecbc2ef110166e02177bacc08a67bc406",
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_bits_never_change(name: str) -> None:
    draw = DRAWS[name]
    drawn = draws.drawn(draw, Stream("k1:0a", "input0"), WORDS * (64 // draw.width) - 1)
    assert hashlib.sha256(bits(drawn).tobytes()).hexdigest() == GOLDEN[name]
