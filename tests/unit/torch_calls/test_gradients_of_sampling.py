"""Gradients of a picture sampled at positions: roundings of the positions are allowed, and wrong gradients are not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch_kit import Wrong, case, fails, only, passes, tensor, verdict

from optest.core.rounded_calls import RoundedCall
from optest.spec import Status, TestCase
from optest.spec.calls import call_text
from optest.torch.calls.call import torch_call
from optest.torch.calls.gradients import upstream_gradients
from optest.torch.calls.rounded_steps import RoundedSteps, _gradients_of
from optest.torch.eager import TorchBackend

NUMBERS = {"bilinear": 0, "nearest": 1, "bicubic": 2}
PADDINGS = ("zeros", "border", "reflection")
OF_PICTURE, OF_GRID = 2, 3
"""Where they stand among the outputs: the sampled picture and which gradients exist come before."""


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("sizes", [(5, 7, 4), (1, 3, 1)])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_steps_make_the_gradients_that_torch_makes(
    dimensions: int, sizes: tuple[int, ...], wanted: tuple[bool, bool]
) -> None:
    places, forward = (6, 8, 3)[:dimensions], f"grid_sampler_{dimensions}d"
    given = drawn(2, 3, *places, seed=2), drawn(2, 3, *sizes[:dimensions]), 1.5 * drawn(2, *places, dimensions, seed=1)
    steps, made = _gradients_of(forward), getattr(torch.ops.aten, f"{forward}_backward")
    for kind, padding, corners in product(range(5 - dimensions), range(len(PADDINGS)), (False, True)):
        expected = made(*given, kind, padding, corners, list(wanted))
        found = steps(*given, kind, padding, corners, list(wanted))
        for is_wanted, one, other in zip(wanted, found, expected, strict=True):
            assert (one is not None) == is_wanted
            if one is not None:
                torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


@pytest.mark.heavy
def test_gradients_of_a_volume_pass() -> None:
    """Positions between so many elements know their last roundings; one step of torch's does not explain them."""
    places = tensor((1, 20, 20, 20, 3), fill="uniform", low=-1.2, high=1.2)
    text = "torch.nn.functional.grid_sample(input0, input1, align_corners=False)"
    passes(case(text, tensor((1, 2, 3, 4, 64)), places, grad=True))


@pytest.mark.heavy
def test_sampling_position_error_includes_unit_offset() -> None:
    """In the middle it is 0 and knows no rounding of itself, but 1 + 0 on its way to 50 elements does."""
    picture = torch.linspace(-1.0, 1.0, 101, dtype=torch.float64).square().expand(1, 1, 3, 101).clone()
    grid = torch.full((1, 1, 1, 2), 0.5e-9, dtype=torch.float64, requires_grad=True)
    gradients = []
    for time in range(9):
        with RoundedSteps(2.0**-24, str(time)):
            found = torch.nn.functional.grid_sample(picture, grid, mode="bicubic", align_corners=True)
            gradients.append(torch.autograd.grad(found.sum(), grid)[0][0, 0, 0, 0].item())
    spread = max(gradients) - min(gradients)
    assert 2.0 * 2.0**-26 <= spread <= 2.0 * 2.0**-20


def sampling(mode: str, padding: str, corners: bool) -> TestCase:
    return case(
        f"torch.nn.functional.grid_sample(input0, input1, mode='{mode}', padding_mode='{padding}', "
        f"align_corners={corners})",
        tensor((2, 3, 5, 20)),
        tensor((2, 13, 10, 2), fill="uniform", low=-1.2, high=1.2),
        grad=True,
    )


class Differentiated(TorchBackend):
    """Torch whose gradients come from another function of what comes from above, picture, grid and how it is asked."""

    def __init__(self, gradients: Callable[..., Any], *asked: Any) -> None:
        super().__init__()
        self._gradients, self._how = gradients, asked

    def run(self, case: TestCase, inputs: Any) -> Any:
        right = [np.array(each) for each in super().run(case, inputs)]
        given = list(inputs)
        above = upstream_gradients(torch_call(case.attributes["call"]), given)(0, torch.from_numpy(right[0]))
        found = self._gradients(above, *map(torch.from_numpy, given), *self._how)
        return [*right[:OF_PICTURE], *(each.numpy() for each in found)]


def by_torch(*given: Any) -> Any:
    return torch.ops.aten.grid_sampler_2d_backward(*given, [True, True])


HOW = (("bilinear", "border", False), pytest.param(("bicubic", "zeros", True), marks=pytest.mark.heavy))

MOVED: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def _moved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What roundings make of a call is the same whatever it is held against, and takes seconds."""
    moved = RoundedCall.moved

    def remembered(asked: Any, number: int, share: float, *, takes_apart: bool) -> Any:
        key = (call_text(asked.evaluate.call.call), tuple(asked.units), number, share, takes_apart)
        if key not in MOVED:
            MOVED[key] = moved(asked, number, share, takes_apart=takes_apart)
        return MOVED[key]

    monkeypatch.setattr(RoundedCall, "moved", remembered)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW, ids=str)
def test_gradients_that_torch_makes_pass(how: tuple[str, str, bool]) -> None:
    """Of the second, roundings of what moves with the inputs alone do not explain two elements of 520."""
    mode, padding, corners = how
    passes(sampling(*how), None, Differentiated(by_torch, NUMBERS[mode], PADDINGS.index(padding), corners))


def zeroed(gradient: Any) -> Any:
    place = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
    gradient[place] = 0.0
    return gradient


CHANGES: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda gradient: gradient * np.float32(1.001),
    "zeroed": zeroed,
    "turned": lambda gradient: gradient[..., ::-1],
}


@pytest.mark.slow
@pytest.mark.parametrize("output", [OF_PICTURE, OF_GRID])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("how", HOW, ids=str)
def test_changed_gradients_are_wrong(how: tuple[str, str, bool], change: str, output: int) -> None:
    fails(sampling(*how), Wrong(only(output, CHANGES[change])))


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("wrong", ["corners", "padding", "interpolation"])
def test_gradients_of_another_sampling_are_wrong(how: tuple[str, str, bool], wrong: str) -> None:
    mode, padding, corners = how
    kind, kept = NUMBERS[mode], PADDINGS.index(padding)
    asked = {
        "corners": (kind, kept, not corners),
        "padding": (kind, (kept + 2) % 3, corners),
        "interpolation": (2 - kind, kept, corners),
    }
    fails(sampling(*how), Differentiated(by_torch, *asked[wrong]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "status"),
    [(1.0, Status.PASSED), (21.0 / 41.5, Status.PASSED), pytest.param(0.75, Status.SUSPECT, marks=pytest.mark.heavy)],
)
def test_gradient_between_cell_sides_is_doubted(share: float, status: Status) -> None:
    """The fourth of five elements, where the slope is 21 before and 41.5 behind."""
    rows = [[0.0, 1.0, 4.0, 9.0, 16.0], [1.0, 3.0, 7.0, 20.0, 50.0], [0.0, 2.0, 5.0, 8.0, 1.0]]
    of = case(
        "torch.nn.functional.grid_sample(input0, input1, align_corners=True)",
        tensor((1, 1, 3, 5), fill="data", values=[[rows]]),
        tensor((1, 1, 1, 2), fill="data", values=[[[[0.5, 0.25]]]]),
        grad=True,
    )
    found = verdict(of, Wrong(only(OF_GRID, lambda gradient: gradient * np.float32([share, 1.0]))))
    assert found.status is status, found
