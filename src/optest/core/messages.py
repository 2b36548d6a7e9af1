"""What a parent and its worker say to each other, as MessagePack."""

from __future__ import annotations

from typing import Any

import msgspec

from optest.core.benchmarking import BenchOptions
from optest.spec import Benchmark, Timings, Verdict

__all__ = [
    "Asked",
    "Broken",
    "Hello",
    "Ran",
    "Ready",
    "ToParent",
    "ToWorker",
    "decode_for_parent",
    "decode_for_worker",
    "encode",
]


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first message to a worker: whom to load and how to run. ``fresh`` forks a process for each execution.

    ``keep`` is the folder where the tensors of every execution are kept, empty for nowhere. ``bench`` asks for timings.
    """

    driver: str
    options: dict[str, Any]
    plugins: list[str]
    import_path: list[str]
    every_measure: bool = False
    fresh: bool = False
    keep: str = ""
    bench: BenchOptions | None = None


class Asked(msgspec.Struct, tag="asked", frozen=True):
    """Run these cases, in wire form and with their keys, as one execution. ``number`` counts the questions."""

    number: int
    keys: list[str]
    cases: list[dict[str, Any]]


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The driver is loaded."""


class Ran(msgspec.Struct, tag="ran", frozen=True):
    """The verdicts in the order of the cases; ``number`` is that of the question."""

    number: int
    verdicts: list[Verdict]
    timings: Timings
    benchmark: Benchmark | None = None
    is_tainted: bool = False
    """Whether foreign code changed the worker, which waits to be ended."""


class Broken(msgspec.Struct, tag="broken", frozen=True):
    """The worker cannot do what it was asked: ``kind`` is ``unavailable``, ``unknown`` or ``error``.

    ``number`` is that of the question, 0 for the greeting.
    """

    number: int
    kind: str
    message: str


ToWorker = Hello | Asked
ToParent = Ready | Ran | Broken

_encoder = msgspec.msgpack.Encoder()
_for_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_for_parent: msgspec.msgpack.Decoder[ToParent] = msgspec.msgpack.Decoder(ToParent)

encode = _encoder.encode
decode_for_worker = _for_worker.decode
decode_for_parent = _for_parent.decode
