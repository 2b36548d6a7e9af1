"""Known differences of torch on the CPU in OpInfo's samples are expected failures, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("expecttest")
torch = pytest.importorskip("torch")

from optest.api import cases  # noqa: E402
from optest.api.source_cases import known_differences  # noqa: E402
from optest.core.runner import execute  # noqa: E402
from optest.operators import operators  # noqa: E402
from optest.plan.expectations import Expectation, read_expectations  # noqa: E402
from optest.spec import Reason, Status, TestCase, Verdict  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402
from optest.torch.opinfo.fill import database  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.filterwarnings("ignore:.nn.functional.upsample")]


def lines() -> tuple[Expectation, ...]:
    path = TorchBackend().expectations_of_samples()
    assert path is not None
    return read_expectations(path, operators=operators, versions=TorchBackend().versions()).lines


def each_verdict(
    source: str, dtype: str, driver: TorchBackend | None = None, sample: str = "", **more: Any
) -> Iterator[tuple[str, Verdict]]:
    driver = driver or TorchBackend()
    revised = known_differences(driver)
    for case in cases(source=source, dtype=dtype, **more):
        if case.skip is None and is_small(case) and f"::{sample}" in case.id:
            yield case.id, revised(case, execute([case], driver).verdicts[0])


def verdicts(*which: Any, **more: Any) -> dict[str, Verdict]:
    return dict(each_verdict(*which, **more))


def test_known_difference_is_expected_in_every_variant() -> None:
    found = verdicts("opinfo:rsqrt", "bfloat16")
    for ending in ("", ".method", ".inplace"):
        one = found[f"opinfo::rsqrt::bfloat16::sample0{ending}"]
        assert (one.status, one.reason) == (Status.XFAILED, Reason.VALUE)
        assert one.message.endswith("(expected: the square root is rounded to 16 bits before the division)")


class Zeros(TorchBackend):
    """Torch backend that returns zeros for the outputs of a slice."""

    zeroed = slice(None)

    def run(self, case: TestCase, inputs: Any) -> Any:
        outputs = [np.array(output) for output in super().run(case, inputs)]
        outputs[self.zeroed] = [np.zeros_like(output) for output in outputs[self.zeroed]]
        return outputs


class WrongGradients(Zeros):
    zeroed = slice(-1, None)


class WrongResults(Zeros):
    zeroed = slice(1)


@pytest.mark.parametrize("name", ["rsqrt", "softmax"])
def test_wrong_result_is_no_known_difference(name: str) -> None:
    assert Status.XFAILED not in {each.status for each in verdicts(f"opinfo:{name}", "bfloat16", Zeros()).values()}


def test_float32_has_no_known_differences() -> None:
    assert {each.status for each in verdicts("opinfo:rsqrt,softmax", "float32").values()} == {Status.PASSED}


@pytest.mark.parametrize(("driver", "excuses"), [(TorchBackend, True), (WrongGradients, False)])
def test_expected_difference_covers_results_but_not_gradients(driver: type[TorchBackend], excuses: bool) -> None:
    found = verdicts("opinfo:logsumexp", "bfloat16", driver(), backward=True, tag=("function",))
    one = found["opinfo::logsumexp::bfloat16::sample1"]
    assert one.reason is Reason.VALUE, one
    assert (one.status is Status.XFAILED) == excuses, one
    assert (Status.XFAILED in {each.status for each in found.values()}) == excuses


# Of pow: 50 elements to the power of one number, a sample with every variant.
OVERFLOWS = "sample3"


def test_known_gradient_difference_in_every_variant() -> None:
    found = verdicts("opinfo:pow", "float16", sample=OVERFLOWS, backward=True)
    told = {name.partition(OVERFLOWS)[2] for name, each in found.items() if each.status is Status.XFAILED}
    assert told == {"", ".method", ".operator", ".inplace", ".inplace_operator"}
    found = verdicts("opinfo:pow", "bfloat16", sample=OVERFLOWS, backward=True)
    assert [each.status for each in found.values()] == [Status.PASSED] * 5


@pytest.mark.parametrize("driver", [WrongGradients, WrongResults])
def test_gradient_expectation_does_not_cover_wrong_numbers(driver: type[TorchBackend]) -> None:
    found = verdicts("opinfo:pow", "float16", driver(), sample=OVERFLOWS, backward=True, tag=("function",))
    assert Status.FAILED in {each.status for each in found.values()}
    assert Status.XFAILED not in {each.status for each in found.values()}


def test_compilers_and_other_devices_have_no_expectations() -> None:
    driver = TorchBackend()
    driver.configure({"compile_backend": "aot_eager"})
    assert driver.expectations_of_samples() is None
    driver.configure({})
    assert driver.expectations_of_samples() is not None
    driver._device = torch.device("meta")
    assert driver.expectations_of_samples() is None


# Elements of a sample for which a 16-bit reference takes half a minute.
_TOO_LARGE = 1 << 20


def is_small(case: TestCase) -> bool:
    return sum(argument.spec.elements for argument in case.inputs) < _TOO_LARGE


@pytest.mark.heavy
@pytest.mark.parametrize("line", [pytest.param(each, id=each.name) for each in lines()])
def test_every_expectation_is_needed(line: Expectation) -> None:
    # Processors with matrix units or float16 arithmetic have other 16-bit kernels than those that the file is for.
    last = line.op.rpartition(".")[2]
    names = [full for full, info in database().items() if last == info.name.rpartition(".")[2]]
    # Other forms of the call have other upstream gradients, of which few reach a difference.
    tag = () if line.is_of_gradients else ("function",)
    found = each_verdict(f"opinfo:{','.join(names)}", line.dtype, tag=tag, backward=line.is_of_gradients)
    excused = next((one for _, one in found if str(one.details.get("expectation", "")).startswith(line.name)), None)
    has_matrix_units = "amx" in TorchBackend().versions().get("torch_cpu", "")
    has_float16 = "avx512_fp16" in Path("/proc/cpuinfo").read_text()
    assert (
        excused
        or (has_matrix_units and line.dtype in ("float16", "bfloat16"))
        or (has_float16 and line.dtype == "float16")
    )
    assert (
        excused is None
        or line.at_most_ulp is None
        or all((measure.max_ulp_error or 0.0) <= line.at_most_ulp for measure in excused.measures)
    )


class Off(TorchBackend):
    """Torch whose first pixel is off by a few levels."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels

    def run(self, case: TestCase, inputs: Any) -> Any:
        (output,) = (np.array(each) for each in super().run(case, inputs))
        first = output.reshape(-1)[:1]
        first[:] = np.where(first < 128, first + self.levels, first - self.levels)
        return [output]


@pytest.mark.parametrize("levels", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "within"), [("nn.functional.upsample_bilinear", 1), ("nn.functional.upsample_nearest", 0)]
)
def test_interpolated_integer_pixels_may_be_one_off(name: str, within: int, levels: int) -> None:
    asked = [
        case for case in cases(source=f"opinfo:{name}", dtype="uint8", tag=("function",)) if "::sample1" in case.id
    ]
    assert asked
    for case in asked:
        (verdict,) = execute([case], Off(levels)).verdicts
        assert verdict.status is (Status.PASSED if levels <= within else Status.FAILED), (case.id, verdict)
