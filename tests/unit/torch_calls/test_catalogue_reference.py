"""``check --reference torch``: torch in float64 says what is expected, and NumPy where torch has nothing better."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from texts import refusal, says

from optest.api.checking import check, check_request, sample_cases, write
from optest.api.report import Report
from optest.errors import UnknownName, UsageError
from optest.registry import load_object
from optest.spec import ReferenceNote, Status
from optest.torch.operators import TORCH_OPERATORS

MODULE = "optest.torch.operators.reference"


def asked(**options: Any) -> tuple[Report, str]:
    stream = io.StringIO()
    given = {"backend": "numpy", "reference": "torch", "isolate": "none", "jobs": 1, **options}
    return check(given, stream=stream), stream.getvalue()


def expected(operator: str, *inputs: Any, **attributes: Any) -> list[Any]:
    (case, *_) = sample_cases(operator)
    reference: Any = load_object(f"{MODULE}:{operator}")
    return list(reference(list(inputs), {**case.attributes, **attributes}))


def test_it_is_torch_in_float64() -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    (found,) = expected("softmax", x, dim=1)
    assert found.dtype == np.float64
    assert np.array_equal(found, torch.softmax(torch.from_numpy(x).double(), 1).numpy())


def test_numpy_is_judged_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend answers with NumPy's reference, and a wrong torch shows that torch's outputs are expected."""
    outcome, text = asked(op=("relu", "matmul", "argmax"), tier="smoke")
    assert {(each.status, each.reference) for each in outcome.results} == {(Status.PASSED, "torch")}
    assert "expected by" not in text
    assert "is the reference itself" not in text
    monkeypatch.setitem(TORCH_OPERATORS, "relu", lambda tensors, _: tensors[0] + 1)
    outcome, text = asked(op=("relu",), tier="smoke")
    assert [each.status for each in outcome.results] == [Status.FAILED]
    assert f"--reference {MODULE}:relu" in text


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "why"),
    [
        ("relu", (np.ones(3),), {}, "nothing wider than float64"),
        ("relu", (np.array([1, np.nan], np.float32),), {}, "libraries differ in how they treat NaN"),
        ("add", (np.ones(3, np.int32), np.ones(3, np.float16)), {}, "of several dtypes"),
        ("rms_norm", (np.ones((2, 3), np.float32), None), {"normalized_shape": (3,), "eps": None}, "eps follows"),
        ("sum", (np.ones(3, np.int32),), {"dim": None, "dtype": "float32"}, "rounded to another dtype"),
        ("add", (np.ones(3, np.uint16),) * 2, {}, "not implemented"),
        ("floor_divide", (np.ones(3, np.int8), np.zeros(3, np.int8)), {}, "ZeroDivisionError"),
    ],
)
def test_where_numpy_keeps_it_the_case_says_so(
    operator: str, inputs: Any, attributes: dict[str, Any], why: str
) -> None:
    *outputs, note = expected(operator, *inputs, **attributes)
    assert isinstance(note, ReferenceNote)
    assert why in note.text
    assert len(outputs) == 1


def test_the_check_counts_what_numpy_keeps() -> None:
    _, text = asked(op=("neg",), case_set=("special",))
    assert says(text, "torch_calls.expected_by_numpy_reference")


def test_an_operator_that_torch_lacks_keeps_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    import optest.torch.operators.reference as module

    monkeypatch.setattr(module, "REFERENCES", module.REFERENCES - {"relu"})
    outcome, text = asked(op=("relu", "neg"), tier="smoke")
    assert {each.operator: each.reference for each in outcome.results} == {"relu": "numpy", "neg": "torch"}
    assert says(text, "torch_calls.not_in_reference_torch")
    with refusal(UsageError, "torch_calls.has_no_attribute_nothing"):
        load_object(f"{MODULE}:nothing")


def test_another_name_and_what_cannot_be_written(tmp_path: Any) -> None:
    with pytest.raises(UnknownName, match="torch"):
        check_request({"backend": "numpy", "reference": "torhc", "op": ("relu",)})
    with refusal(UsageError, "torch_calls.write_writes_cases_without"):
        write({"backend": "numpy", "reference": "torch", "op": ("relu",)}, str(tmp_path / "plan.yaml"))


def test_without_torch(tmp_path: Any) -> None:
    code = "import sys; sys.modules['torch'] = None; from optest.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *["check", "--backend", "numpy", "--reference", "torch", "--op", "relu"]]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 5, ended
    assert "pip install torch" in ended.stderr
