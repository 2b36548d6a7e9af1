"""How often do optest and ``torch.testing`` reject a softmax that rounds each of its steps to float16?

    python benchmarks/steadiness.py [SEEDS]

Each seed draws other inputs. ``torch.testing.assert_close`` compares with ``torch.softmax`` by its default tolerances
for float16; ``optest.testing.assert_right`` by the rule of the operator. The same for ``torch.softmax`` itself,
which is right: both should pass it for each seed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from optest.testing import assert_right

SHAPES = ((4, 128), (16, 256), (64, 1000))


def rounded(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))  # float16, as everything here
    total = powers.float().sum(-1, keepdim=True).half()
    return powers / total


def right(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def close(x: torch.Tensor, actual: torch.Tensor) -> None:
    torch.testing.assert_close(actual, torch.softmax(x, -1))


def judged(x: torch.Tensor, actual: torch.Tensor) -> None:
    assert_right(actual, op="softmax", inputs=[x], dim=-1)


def failures(
    function: Callable[[torch.Tensor], torch.Tensor],
    judge: Callable[[torch.Tensor, torch.Tensor], None],
    shape: tuple[int, ...],
    seeds: int,
) -> int:
    count = 0
    for seed in range(seeds):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()
        try:
            judge(x, function(x))
        except AssertionError:
            count += 1
    return count


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"failures in {seeds} seeds\n\n| softmax | shape | torch.testing.assert_close | optest |\n|---|---|---|---|")
    wrong = 0
    for name, function, expected in (("rounds its steps to float16", rounded, seeds), ("torch's own", right, 0)):
        for shape in SHAPES:
            counts = [failures(function, judge, shape, seeds) for judge in (close, judged)]
            print(f"| {name} | {'x'.join(map(str, shape))} | {counts[0]} | {counts[1]} |", flush=True)
            wrong += abs(counts[1] - expected)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
