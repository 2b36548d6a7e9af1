"""Where in a model a call stands: the text of its statement, and the line that its warnings point at."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from capture_kit import recorded  # noqa: E402

from optest.torch.capture import watching  # noqa: E402
from optest.torch.capture.places import code_at  # noqa: E402

pytestmark = pytest.mark.torch


TEXT = """\
x = f(1)
y = f(
    x,  # the first one
    "a # b",
)
for z in (g(y),
          g(x)):
    h(
        z,
    ).relu(
    )
t = (
    x,
)
pair = [
    x,
    y,
]
long = f(
    "{a}",
    g(
        x,
        {{"k": y}},
    ),
    "{a}",
)
""".format(a="a" * 120)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, "x = f(1)"),
        (2, "y = f(x, 'a # b')"),
        (3, "y = f(x, 'a # b')"),
        (5, "y = f(x, 'a # b')"),
        (6, "(g(y), g(x))"),
        (7, "(g(y), g(x))"),
        (8, "h(z).relu()"),
        (10, "h(z).relu()"),
        (13, "t = (x,)"),
        (17, "pair = [x, y]"),
        (19, "long = f("),
        (22, "g(x, {'k': y})"),
        (0, ""),
        (99, ""),
    ],
)
def test_a_statement_is_shown_as_one_line(line: int, text: str) -> None:
    assert code_at(TEXT.splitlines(keepends=True), line) == text


def test_unparsable_text_is_shown_by_line() -> None:
    assert code_at(["%timeit f(\n", "  x)\n"], 2) == "x)"


# Warnings of calls that are watched point at the line of the model, whether Python or C++ of torch's gives them.


X = torch.rand(2, 3, 4)


def of_python() -> None:
    F.mse_loss(X, X[:1])


def warnings_of(function: Callable[[], object], level: str = "torch") -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        shown = warnings.showwarning
        recorded(function, level)
        assert warnings.showwarning is shown
    return told


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_torch_warning_points_at_model_line(level: str) -> None:
    (warning,) = warnings_of(of_python, level)
    assert "Using a target size" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, inspect.getsourcelines(of_python)[1] + 1)


@pytest.mark.parametrize(
    ("place", "expected"), [((watching.__file__, 1), __file__), (("elsewhere.py", 7), "elsewhere.py")]
)
def test_warning_of_forwarding_frame_points_at_model(place: tuple[str, int], expected: str) -> None:
    """As those of C++ are, which know the running frame alone; torch gives most of them once in a process."""

    def warned() -> None:
        warnings.warn_explicit("once", UserWarning, *place)

    (warning,) = warnings_of(lambda: warned())
    assert warning.filename == expected
    assert expected == __file__ or warning.lineno == place[1]


def test_model_keeps_its_showwarning() -> None:
    def own(*_: object, **__: object) -> None: ...

    def model() -> None:
        warnings.showwarning = own

    with warnings.catch_warnings():
        recorded(model)
        assert warnings.showwarning is own
