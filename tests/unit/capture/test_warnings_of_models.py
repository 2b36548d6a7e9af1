"""Warnings of calls that are watched point at the line of the model, whether Python or C++ of torch's gives them."""

from __future__ import annotations

import inspect
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from capture_kit import recorded  # noqa: E402

from optest.torch.capture import watching  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.rand(2, 3, 4)


def of_python() -> None:
    F.mse_loss(X, X[:1])


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_a_warning_of_torch_is_at_the_line_that_calls_it(level: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        recorded(of_python, level)
    (warning,) = told
    assert "Using a target size" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, inspect.getsourcelines(of_python)[1] + 1)


def test_a_warning_at_the_frame_that_hands_the_call_on_is_moved_to_the_model() -> None:
    """As those of C++ are, which know the running frame alone; torch gives most of them once in a process."""

    def warned(*_: object, **__: object) -> object:
        warnings.warn_explicit("once", UserWarning, watching.__file__, 1)
        return X

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        shown = warnings.showwarning
        recorded(lambda: warned())
        assert warnings.showwarning is shown
    (warning,) = told
    assert warning.filename == __file__


def test_a_warning_of_the_models_own_stays_where_it_is() -> None:
    def warned() -> None:
        warnings.warn_explicit("mine", UserWarning, "elsewhere.py", 7)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        recorded(warned)
    assert [(each.filename, each.lineno) for each in told] == [("elsewhere.py", 7)]


def test_a_model_that_shows_warnings_itself_goes_on_to() -> None:
    def own(*_: object, **__: object) -> None: ...

    def model() -> None:
        warnings.showwarning = own

    with warnings.catch_warnings():
        recorded(model)
        assert warnings.showwarning is own
