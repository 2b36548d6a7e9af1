"""The bits of tensors of more than a million words never change."""

from __future__ import annotations

import hashlib

import pytest

from optest.generators import draws
from optest.generators.counter import Stream
from optest.numerics import bits
from optest.spec import dtype as dtype_called

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
