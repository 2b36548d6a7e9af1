"""OpInfo's samples as cases: selection, calls, and values that are rebuilt bit for bit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from texts import refusal, says

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from optest.api import cases  # noqa: E402
from optest.core.expected import make_inputs  # noqa: E402
from optest.core.runner import execute  # noqa: E402
from optest.core.wire import case_from_wire, case_to_wire  # noqa: E402
from optest.errors import NothingSelected, UnknownName, UsageError  # noqa: E402
from optest.operators import operators  # noqa: E402
from optest.plan.sources import SourceRequest, collect_sources  # noqa: E402
from optest.spec import Fault, Reason, Status, TestCase  # noqa: E402
from optest.spec.calls import parse_call  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402
from optest.torch.opinfo import trial_call  # noqa: E402
from optest.torch.opinfo.fill import array_of, database, samples_of, tensors_of  # noqa: E402
from optest.torch.opinfo.source import collect  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.torch]


def entries(*names: str, dtypes: tuple[str, ...] = ("float32",), **more: Any) -> list[Any]:
    return list(collect(SourceRequest(names=names, dtypes=dtypes, **more)).entries)


def calls(*names: str, **more: Any) -> list[str]:
    return [entry["attributes"]["call"] for entry in entries(*names, **more) if "skip" not in entry]


@pytest.mark.heavy
def test_ids_name_operator_dtype_sample_and_variant() -> None:
    names = [entry["name"] for entry in entries("add")]
    first = "opinfo::add::float32::sample0"
    assert names[:4] == [first, *(f"{first}.{variant}" for variant in ("method", "inplace", "operator"))]
    assert len(names) == len(set(names))
    assert names == [entry["name"] for entry in entries("add")]


def test_each_variant_calls_another_function() -> None:
    functions = {entry["tags"][2]: entry["op"] for entry in entries("add")}
    assert functions == {
        "function": "torch.add",
        "method": "torch.Tensor.add",
        "inplace": "torch.Tensor.add_",
        "operator": "torch.Tensor.__add__",
        "inplace_operator": "torch.iadd",
    }


def test_inplace_variant_exists_if_result_fits() -> None:
    found = entries("add")
    shapes = [entry["shapes"] for entry in found if entry["tags"][2] == "inplace"]
    assert shapes
    # A sample of 5 x 1 cannot hold the sum with a row of 5.
    assert len(shapes) < sum(entry["tags"][2] == "function" for entry in found)
    for shape in shapes:
        first, second = (x if isinstance(x, list) else x["shape"] for x in (shape["input0"], shape["input1"]))
        assert torch.broadcast_shapes(first, second) == torch.Size(first)


def test_every_sample_becomes_an_entry() -> None:
    distance_loss = "nn.functional.triplet_margin_with_distance_loss"
    for name in ("sum", "softmax", "nn.functional.conv2d", distance_loss, "to_sparse"):
        functions = [entry["name"] for entry in entries(name) if entry["tags"][2] == "function"]
        assert functions == [
            f"opinfo::{full}::float32::sample{number}"
            for full, info in database().items()
            if info.name == name
            for number in range(len(samples_of(full, "float32", 0)))
        ]


@pytest.mark.parametrize(
    ("name", "count", "reason"),
    [
        ("empty_like", 1, "its result is uninitialised memory"),
        ("jiterator_unary", 1, "it runs only on CUDA, from source code"),
        ("max_pool2d_with_indices_backward", None, "OpInfo's function makes 3 torch calls, expected 1"),
        (
            "nn.functional.triplet_margin_with_distance_loss",
            None,
            "distance_function is a callable (PairwiseDistance), expected a literal or a tensor",
        ),
    ],
)
def test_unusable_operator_is_skipped_with_reason(name: str, count: int | None, reason: str) -> None:
    found = [entry for entry in entries(name) if entry["tags"][2] != "error"]
    assert {entry["skip"].partition(":")[0] for entry in found if "skip" in entry} == {reason}
    assert "triplet" in name or all("skip" in entry for entry in found)
    assert count in (None, len(found))


def test_calls_are_parsable_text() -> None:
    assert "torch.sum(input0, dim=-1, keepdim=False)" in calls("sum")
    assert any("mode='trunc'" in text or "rounding_mode='trunc'" in text for text in calls("div.trunc_rounding"))
    for text in calls("sum", "cat", "nn.functional.conv2d", "where", "polygamma"):
        parse_call(text)


def test_wrapper_yields_its_torch_call() -> None:
    # OpInfo has wrappers of ``where`` and ``polygamma`` with another order of arguments.
    assert {"torch.where(input1, input0, input2)", "torch.Tensor.where(input0, input1, input2)"} <= set(calls("where"))
    assert calls("polygamma.polygamma_n_1")[0].startswith("torch.polygamma(1, input0")
    assert calls("T")[0] == "torch.ops.aten.numpy_T(input0)"


def test_entries_keep_sample_layouts() -> None:
    found = entries("sum", "linalg.vector_norm", "nn.functional.conv2d", "as_strided", "matmul")
    shapes = [shape for entry in found for shape in entry.get("shapes", {}).values()]
    assert [shape for shape in shapes if isinstance(shape, dict)]


def test_dtypes_default_to_those_of_opinfo() -> None:
    every = {entry["tags"][1] for entry in entries("bitwise_and", dtypes=())}
    assert every == {"bool", "int8", "int16", "int32", "int64", "uint8"}
    found = collect(SourceRequest(names=("bitwise_and", "add"), dtypes=("float32",)))
    assert {entry["tags"][1] for entry in found.entries} == {"float32"}
    assert found.notes == ("OpInfo has no float32 samples of 1 operator: bitwise_and",)


ROUNDINGS = {"div.no_rounding_mode", "div.trunc_rounding", "div.floor_rounding"}


@pytest.mark.parametrize(
    ("names", "operators_"),
    [
        (("any", "all"), {"any", "all"}),
        (("torch.all",), {"all"}),
        (("div",), ROUNDINGS),
        (("div.*",), ROUNDINGS),
        (("div.trunc_rounding",), {"div.trunc_rounding"}),
        (("torch.add",), {"add"}),
        (("absolute",), {"abs"}),
    ],
)
def test_names_may_be_full_short_or_globs(names: tuple[str, ...], operators_: set[str]) -> None:
    assert {entry["name"].split("::")[1] for entry in entries(*names)} == operators_


def test_misspelt_operator_gets_hint() -> None:
    with refusal(UnknownName, "sources.did_you_mean_softmax_2"):
        entries("sotfmax")


def test_calls_contain_requested_device() -> None:
    assert any("device('cuda')" in text for text in calls("new_full", device="cuda"))
    assert any("device('cpu')" in text for text in calls("new_full"))


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        *((each, UsageError, "sources.should_look_like_source") for each in ("opinfo", "opinfo:", "opinfo: ,")),
        ("opinf:add", UnknownName, "sources.unknown_source_opinf_did"),
    ],
)
def test_wrong_source_is_an_error(source: str, error: type[Exception], text: str) -> None:
    with refusal(error, text):
        collect_sources([source])


def of_source(text: str, **more: Any) -> list[TestCase]:
    return cases(source=text, dtype="float32", **more)


def test_values_are_those_of_the_sample() -> None:
    for case in of_source("opinfo:softmax"):
        number = int(case.name.partition("sample")[2].partition(".")[0])
        inputs, known = make_inputs(case)
        assert known is None
        for given, tensor in zip(inputs, tensors_of(samples_of("softmax", "float32", 0)[number]), strict=True):
            assert given.tobytes() == array_of(tensor).tobytes()
            assert given.shape == tuple(tensor.shape)


def test_strides_are_those_of_the_sample() -> None:
    seen = 0
    for case in of_source("opinfo:as_strided,linalg.vector_norm,sum,nn.functional.conv2d,matmul"):
        for argument, array in zip(case.inputs, make_inputs(case)[0], strict=True):
            if argument.spec.strides is not None and array.size > 1:
                seen += 1
                assert [entry // array.itemsize for entry in array.strides] == list(argument.spec.strides)
    assert seen


def test_seed_determines_values() -> None:
    first, second, again = (of_source("opinfo:exp", seed=seed)[0] for seed in (1, 2, 1))
    assert first.key == again.key != second.key
    one, two, three = (make_inputs(case)[0][0] for case in (first, second, again))
    assert one.tobytes() == three.tobytes() != two.tobytes()


def test_random_state_is_restored() -> None:
    torch.manual_seed(5)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    samples_of.cache_clear()
    entries("nn.functional.dropout", "where", "exp")
    assert torch.equal(state, torch.get_rng_state())
    assert (np.random.get_state()[1] == numpy_state).all()


def test_case_survives_transfer_to_worker() -> None:
    case = of_source("opinfo:matmul")[0]
    again = case_from_wire(case_to_wire(case), operators.get)
    assert (again, again.key) == (case, case.key)
    one, two = ([array.tobytes() for array in make_inputs(each)[0]] for each in (case, again))
    assert one == two


def test_changed_sample_values_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    case = of_source("opinfo:exp")[0]
    info = database()["exp"]
    original = info.sample_inputs_func

    def others(*args: Any, **kwargs: Any) -> Any:
        torch.rand(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(info, "sample_inputs_func", others)
    samples_of.cache_clear()
    with pytest.raises(Fault) as raised:
        make_inputs(case)
    samples_of.cache_clear()
    assert raised.value.reason is Reason.BAD_CASE
    assert raised.value.message == (
        f"input0 is from sample 0 of exp[float32] with seed 0, whose values differ from those of the case "
        f"from OpInfo of torch {torch.__version__}; this is torch {torch.__version__}: collect the cases again"
    )


def test_missing_sample_is_reported() -> None:
    wire = case_to_wire(of_source("opinfo:exp")[0])
    name, path, spec, kind, stated = wire["inputs"][0]
    wire["inputs"] = [(name, path, spec, kind, {**stated, "sample": 4711})]
    with pytest.raises(Fault, match=f"OpInfo of torch {torch.__version__.replace('+', '.')} has no sample 4711 of exp"):
        make_inputs(case_from_wire(wire, operators.get))


def require_pass(selected: list[TestCase]) -> None:
    assert selected
    statuses = {case.id: execute([case], TorchBackend()).verdicts[0].status for case in selected}
    assert statuses == dict.fromkeys(statuses, Status.PASSED)


@pytest.mark.parametrize(
    "name",
    ["linalg.svd", "linalg.eig", "linalg.qr", "geqrf", "add", "sum", "softmax", "nn.functional.linear", "gather", "cat",
     "where", "cumsum"],
)  # fmt: skip
def test_torch_passes_its_own_samples(name: str) -> None:
    require_pass([case for case in of_source(f"opinfo:{name}") if case.skip is None])


def test_options_conflicting_with_source_are_refused() -> None:
    for option in ({"plan": "x.yaml"}, {"shape": ("input0=2x2",)}, {"generator": "ones"}, {"attr": ("dim=0",)}):
        with pytest.raises(UsageError, match=f"--{next(iter(option))} and --source exclude"):
            cases(source="opinfo:exp", **option)


def test_dtype_without_samples_selects_nothing() -> None:
    with refusal(NothingSelected, "sources.opinfo_has_no_float"):
        cases(source="opinfo:bitwise_and", dtype="float32")


@pytest.mark.heavy
def test_missing_package_of_opinfo_is_named() -> None:
    program = (
        "import sys; sys.modules['expecttest'] = None\n"
        "from optest.cli import main\n"
        "sys.argv = ['optest', 'run', '--source', 'opinfo:add']\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 5
    assert "OpInfo of torch" in ended.stderr
    assert says(ended.stderr, "sources.is_unavailable_pip_install")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "name", ["conj", "real", "unbind", "unflatten", "nn.functional.local_response_norm", "nn.functional.batch_norm"]
)
def test_samples_without_elements_pass(name: str) -> None:
    require_pass([case for case in of_source(f"opinfo:{name}") if any(not x.spec.elements for x in case.inputs)])


def test_changed_inputs_are_not_declared_outputs() -> None:
    require_pass(of_source("opinfo:_batch_norm_with_update"))


def test_gradients_of_empty_samples_pass() -> None:
    selected = of_source("opinfo:softmax,exp,matmul", backward=True)
    require_pass([case for case in selected if any(not x.spec.elements for x in case.inputs)])


def test_noise_divided_by_zero_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    # The sign of a sum near 0 depends on the processor, so both results are stand-ins.
    output = np.array([complex(np.inf, 1.0), 2.0])

    def is_noise(reference: list[complex]) -> bool:
        monkeypatch.setattr(trial_call, "_with_float64", lambda *_: [(output, np.array(reference))])
        return trial_call._is_infinite_noise("", [], [torch.from_numpy(output)])

    assert is_noise([complex(-np.inf, 1.0), 2.0])
    assert not is_noise([complex(np.inf, 1.0), 2.0])
    assert not is_noise([complex(3.0, 1.0), 2.0])


@pytest.mark.filterwarnings("ignore:cov")  # of one sample, which is left out on some processors
def test_cov_samples_pass_or_are_noise() -> None:
    left_out = [entry["skip"] for entry in entries("cov", dtypes=("complex128",)) if "skip" in entry]
    assert all("noise around 0, divided by 0" in reason for reason in left_out)
    assert len(left_out) < 3
    require_pass([case for case in cases(source="opinfo:cov", dtype="complex128") if case.skip is None])
