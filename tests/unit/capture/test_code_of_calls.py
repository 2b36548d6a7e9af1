"""The text of a statement around a line: what spans several lines is one, and what is too long is cut down."""

from __future__ import annotations

import pytest

from optest.torch.capture.places import code_at

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
        (2, 'y = f(x, "a # b")'),
        (3, 'y = f(x, "a # b")'),
        (5, 'y = f(x, "a # b")'),
        (6, "for z in (g(y), g(x)):"),
        (7, "for z in (g(y), g(x)):"),
        (8, "h(z).relu()"),
        (10, "h(z).relu()"),
        (13, "t = (x,)"),
        (17, "pair = [x, y]"),
        (19, "long = f("),
        (22, 'g(x, {"k": y}),'),
        (0, ""),
        (99, ""),
    ],
)
def test_a_statement_is_shown_as_one_line(line: int, text: str) -> None:
    assert code_at(TEXT.splitlines(keepends=True), line) == text


def test_text_that_is_no_python_is_shown_by_line() -> None:
    assert code_at(["%timeit f(\n", "  x)\n"], 2) == "x)"
