"""Reasons that differ in values alone are told once, with the values."""

from __future__ import annotations

import pytest
from texts import says_exactly

from optest.reporting.failure_groups import merged_text, skeleton


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["there is no function for int8; there is f"], "there is no function for int8; there is f"),
        (["no p of 0.0", "no p of -inf"], "no p of 0.0 or -inf"),
        (["no p of 1e-07", "no p of 2", "no p of nan"], "no p of 1e-07, 2 or nan"),
        (
            ["it cannot take a, which has strides [0, 1] for 4x5, but one of them should be 1",
             "it cannot take a, which has strides [7, 2] for 4x5, but one of them should be 1"],
            "it cannot take a, which has strides [0, 1] or [7, 2] for 4x5, but one of them should be 1",
        ),
        (["of one dtype, but the case has float32, int8", "of one dtype, but the case has int4, bool"],
         "of one dtype, but the case has float32, int8 or int4, bool"),
        (["does not take the attribute mode of conv, which is 'same'",
          "does not take the attribute mode of conv, which is None",
          "does not take the attribute mode of conv, which is True"],
         "does not take the attribute mode of conv, which is 'same', None or True"),
        (["behind element [3, 0]: 5a became 91", "behind element [4, 36]: 5a 5a became 00 3f"],
         "behind element [3, 0] or [4, 36]: 5a became 91 or 5a 5a became 00 3f"),
        (["it is float32[4x5], but f takes 1", "it is int8[4x5x6], but f takes 1"],
         "it is float32[4x5] or int8[4x5x6], but f takes 1"),
    ],
)  # fmt: skip
def test_merged_text_lists_differing_values(texts: list[str], told: str) -> None:
    assert len({skeleton(text) for text in texts}) == 1
    assert merged_text(dict.fromkeys(texts, 1)) == told


def test_of_many_values_the_commonest_are_shown() -> None:
    texts = {f"no alpha of {number}.25": number for number in range(100, 140)}
    assert says_exactly(merged_text(texts), "reporting.no_alpha_of_or")
    assert merged_text({f"no p of {'9' * 30}{number}": 1 for number in range(3)}).count("9" * 30) == 3, "no '1 others'"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cblas_snrm2 has no p of 3.0", "cblas_sasum has no p of 3.0"),
        ("f has no dim0 of 1", "f has no dim1 of 1"),
        ("needs the input a, which the case leaves out", "needs the input b, which the case leaves out"),
        ("f32 is not there", "f64 is not there"),
    ],
)
def test_names_are_no_values(one: str, other: str) -> None:
    assert skeleton(one) != skeleton(other)
