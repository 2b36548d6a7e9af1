"""A large tensor is drawn by several threads: the same bits as by one, whatever their number."""

from __future__ import annotations

import hashlib
import threading

import numpy as np
import pytest

from optest.generators import draws
from optest.generators.counter import LARGE_BLOCK_WORDS, Stream
from optest.generators.draws import in_threads
from optest.numerics import Array, bits
from optest.spec import Fault, Reason
from optest.spec import dtype as dtype_called

WORDS = draws._WORDS_THAT_PAY + 3 * LARGE_BLOCK_WORDS // 2 + 7
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


def drawn_by(threads: int, name: str, monkeypatch: pytest.MonkeyPatch) -> Array:
    draw = DRAWS[name]
    monkeypatch.setattr(draws, "numerical_threads", lambda: threads)
    return draws.drawn(draw, Stream("k1:0a", "input0"), WORDS * (64 // draw.width) - 1)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", DRAWS)
def test_the_bits_never_change(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """These are the bits of the version that drew by one thread alone."""
    drawn = drawn_by(threads, name, monkeypatch)
    assert hashlib.sha256(bits(drawn).tobytes()).hexdigest() == GOLDEN[name]


def test_several_threads_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    draw = DRAWS["booleans"]
    all_at_work = threading.Barrier(3, timeout=60)

    def noticed(block: Array) -> Array:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            all_at_work.wait()
        return draw.of(block)

    monkeypatch.setitem(DRAWS, "noticed", draws.Draw(width=16, dtype=draw.dtype, of=noticed))
    drawn_by(3, "noticed", monkeypatch)
    assert len(seen) == 3
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("count", [1, 10, 11, 39, 40, 41, 1000])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_the_parts_make_up_the_range(count: int, threads: int) -> None:
    parts: list[tuple[int, int]] = []
    in_threads(lambda first, end: parts.append((first, end)), count, 10, threads)
    parts.sort()
    assert len(parts) == min(threads, -(-count // 10))
    assert [first % 10 for first, _ in parts] == [0] * len(parts)
    assert [number for first, end in parts for number in range(first, end)] == list(range(count))


def test_a_thread_heeds_what_numpy_was_told() -> None:
    heard = []
    with np.errstate(divide="raise", over="ignore"):
        in_threads(lambda *_: heard.append(np.geterr()), 20, 10, 2)
        assert heard == [np.geterr()] * 2


def test_what_a_part_raises_is_raised() -> None:
    def work(first: int, end: int) -> None:
        if first:
            raise Fault(Reason.BAD_CASE, "nothing legal can be drawn")

    with pytest.raises(Fault, match="nothing legal"):
        in_threads(work, 20, 10, 2)
