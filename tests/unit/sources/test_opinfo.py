"""Torch's own samples as cases: which there are, what they say, and that their values are made again bit for bit."""

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
from optest.core.inputs import make_inputs  # noqa: E402
from optest.core.runner import execute  # noqa: E402
from optest.core.wire import case_from_wire, case_to_wire  # noqa: E402
from optest.errors import NothingSelected, UnknownName, UsageError  # noqa: E402
from optest.operators import operators  # noqa: E402
from optest.plan.sources import SourceRequest, collected  # noqa: E402
from optest.spec import Fault, Reason, Status, TestCase  # noqa: E402
from optest.spec.calls import parse_call  # noqa: E402
from optest.torch.opinfo import trial_call  # noqa: E402
from optest.torch.opinfo.fill import array_of, database, samples_of, tensors_of  # noqa: E402
from optest.torch.opinfo.source import collect  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.torch]


def entries(*names: str, dtypes: tuple[str, ...] = ("float32",), **more: Any) -> list[Any]:
    return list(collect(SourceRequest(names=names, dtypes=dtypes, **more)).entries)


def calls(*names: str, **more: Any) -> list[str]:
    return [each["attributes"]["call"] for each in entries(*names, **more) if "skip" not in each]


@pytest.mark.heavy
def test_ids_name_operator_dtype_sample_and_form() -> None:
    names = [each["name"] for each in entries("add")]
    assert names[:4] == [
        "opinfo::add::float32::sample0",
        "opinfo::add::float32::sample0.method",
        "opinfo::add::float32::sample0.inplace",
        "opinfo::add::float32::sample0.operator",
    ]
    assert len(names) == len(set(names))
    assert names == [each["name"] for each in entries("add")]


def test_every_form_calls_another_function() -> None:
    functions = {each["tags"][2]: each["op"] for each in entries("add")}
    assert functions == {
        "function": "torch.add",
        "method": "torch.Tensor.add",
        "inplace": "torch.Tensor.add_",
        "operator": "torch.Tensor.__add__",
        "inplace_operator": "torch.iadd",
    }


def test_a_form_in_place_is_there_where_torch_can_write_the_result() -> None:
    """Five by one cannot hold the sum with a row of five."""
    stated = entries("add")
    shapes = [each["shapes"] for each in stated if each["tags"][2] == "inplace"]
    assert shapes
    assert len(shapes) < sum(each["tags"][2] == "function" for each in stated)
    for each in shapes:
        first, second = (
            torch.empty(each[name] if isinstance(each[name], list) else each[name]["shape"])
            for name in ("input0", "input1")
        )
        assert torch.broadcast_shapes(first.shape, second.shape) == first.shape


def test_every_sample_is_a_case_or_says_why_not() -> None:
    for name in (
        "sum",
        "softmax",
        "nn.functional.conv2d",
        "nn.functional.triplet_margin_with_distance_loss",
        "to_sparse",
    ):
        stated = entries(name)
        functions = [each["name"] for each in stated if each["tags"][2] == "function"]
        assert functions == [
            f"opinfo::{full}::float32::sample{number}"
            for full, info in database().items()
            if info.name == name
            for number in range(len(samples_of(full, "float32", 0)))
        ]


def test_what_cannot_be_stated_says_what_it_is() -> None:
    reasons = {each["skip"] for each in entries("nn.functional.triplet_margin_with_distance_loss") if "skip" in each}
    assert reasons == {"distance_function is a PairwiseDistance, which is called"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty_like", "its result is uninitialised memory"),
        ("jiterator_unary", "it runs on CUDA alone, from source code"),
    ],
)
def test_an_operator_without_a_right_answer_is_left_out_by_name(name: str, reason: str) -> None:
    (only,) = [each for each in entries(name) if each["tags"][2] != "error"]
    assert only["skip"] == reason


def test_calls_are_text_that_torch_takes() -> None:
    assert "torch.sum(input0, dim=-1, keepdim=False)" in calls("sum")
    assert any("mode='trunc'" in text or "rounding_mode='trunc'" in text for text in calls("div.trunc_rounding"))
    for text in calls("sum", "cat", "nn.functional.conv2d", "where", "polygamma"):
        parse_call(text)


def test_a_wrapper_of_torch_is_seen_through() -> None:
    """OpInfo has ``where`` as a function of another order of arguments, and ``polygamma`` with n last."""
    assert {"torch.where(input1, input0, input2)", "torch.Tensor.where(input0, input1, input2)"} <= set(calls("where"))
    assert calls("polygamma.polygamma_n_1")[0].startswith("torch.polygamma(1, input0")
    assert calls("T")[0] == "torch.ops.aten.numpy_T(input0)"


def test_a_function_of_several_calls_is_no_call() -> None:
    reasons = {each["skip"].partition(":")[0] for each in entries("max_pool2d_with_indices_backward")}
    assert reasons == {"OpInfo's function is no one call of torch, but 3"}


def test_layouts_are_those_of_the_samples() -> None:
    strided = [
        each
        for each in entries("sum", "linalg.vector_norm", "nn.functional.conv2d", "as_strided", "matmul")
        for shape in each.get("shapes", {}).values()
        if isinstance(shape, dict)
    ]
    assert strided


def test_dtypes_are_those_of_opinfo_unless_narrowed() -> None:
    every = {each["tags"][1] for each in entries("bitwise_and", dtypes=())}
    assert every == {"bool", "int8", "int16", "int32", "int64", "uint8"}
    found = collect(SourceRequest(names=("bitwise_and", "add"), dtypes=("float32",)))
    assert {each["tags"][1] for each in found.entries} == {"float32"}
    assert found.notes == ("OpInfo has no float32 of 1 operator: bitwise_and",)


def test_all_is_an_operator_beside_others() -> None:
    assert operators_of(entries("any", "all")) == {"any", "all"}
    assert operators_of(entries("torch.all")) == {"all"}


def operators_of(found: list[Any]) -> set[str]:
    return {each["name"].split("::")[1] for each in found}


def test_names_are_full_or_short_or_globs() -> None:
    def ops(*names: str) -> set[str]:
        return {each["name"].split("::")[1] for each in entries(*names)}

    assert ops("div") == {"div.no_rounding_mode", "div.trunc_rounding", "div.floor_rounding"}
    assert ops("div.trunc_rounding") == {"div.trunc_rounding"}
    assert ops("torch.add") == {"add"}
    assert ops("absolute") == {"abs"}
    assert ops("div.*") == ops("div")
    with refusal(UnknownName, "sources.did_you_mean_softmax_2"):
        ops("sotfmax")


def test_devices_are_told_to_the_call() -> None:
    assert any("device('cuda')" in text for text in calls("new_full", device="cuda"))
    assert any("device('cpu')" in text for text in calls("new_full"))


@pytest.mark.parametrize("text", ["opinfo", "opinfo:", "opinfo: ,"])
def test_a_source_is_asked_for_names(text: str) -> None:
    with refusal(UsageError, "sources.should_look_like_source"):
        collected([text])


def test_an_unknown_source_is_an_error() -> None:
    with refusal(UnknownName, "sources.unknown_source_opinf_did"):
        collected(["opinf:add"])


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
                assert [each // array.itemsize for each in array.strides] == list(argument.spec.strides)
    assert seen


def test_a_seed_draws_other_values_and_the_same_ones_again() -> None:
    first, second, again = (of_source("opinfo:exp", seed=seed)[0] for seed in (1, 2, 1))
    assert first.key == again.key != second.key
    one, two, three = (make_inputs(case)[0][0] for case in (first, second, again))
    assert one.tobytes() == three.tobytes() != two.tobytes()


def test_generators_of_torch_go_on_as_if_nothing_had_been_drawn() -> None:
    torch.manual_seed(5)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    samples_of.cache_clear()
    entries("nn.functional.dropout", "where", "exp")
    assert torch.equal(state, torch.get_rng_state())
    assert (np.random.get_state()[1] == numpy_state).all()


def test_a_case_crosses_into_a_worker_as_names_and_numbers_alone() -> None:
    case = of_source("opinfo:matmul")[0]
    again = case_from_wire(case_to_wire(case), operators.get)
    assert again == case
    assert again.key == case.key
    for one, two in zip(make_inputs(case)[0], make_inputs(again)[0], strict=True):
        assert one.tobytes() == two.tobytes()


def test_other_values_than_at_the_time_of_the_run_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
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
        f"input0 is of sample 0 of exp[float32] with seed 0, whose values are others now than when the case was made "
        f"from OpInfo of torch {torch.__version__}; this is torch {torch.__version__}"
    )


def test_a_sample_that_is_not_there_any_more_is_told() -> None:
    wire = case_to_wire(of_source("opinfo:exp")[0])
    name, path, spec, kind, stated = wire["inputs"][0]
    wire["inputs"] = [(name, path, spec, kind, {**stated, "sample": 4711})]
    with pytest.raises(Fault, match=f"OpInfo of torch {torch.__version__.replace('+', '.')} has no sample 4711 of exp"):
        make_inputs(case_from_wire(wire, operators.get))


def status(case: TestCase) -> Status:
    from optest.torch.eager import TorchBackend

    return execute([case], TorchBackend()).verdicts[0].status


@pytest.mark.parametrize(
    "name",
    ["linalg.svd", "linalg.eig", "linalg.qr", "geqrf", "add", "sum", "softmax", "nn.functional.linear", "gather", "cat",
     "where", "cumsum"],
)  # fmt: skip
def test_torch_passes_its_own_samples(name: str) -> None:
    found = {case.id: status(case) for case in of_source(f"opinfo:{name}") if case.skip is None}
    assert found
    assert {case for case, status in found.items() if status is not Status.PASSED} == set()


def test_options_that_contradict_a_source_are_refused() -> None:
    for option in ({"plan": "x.yaml"}, {"shape": ("input0=2x2",)}, {"generator": "ones"}, {"attr": ("dim=0",)}):
        with pytest.raises(UsageError, match=f"--{next(iter(option))} is given beside --source"):
            cases(source="opinfo:exp", **option)


def test_a_dtype_that_nothing_has_leaves_nothing() -> None:
    with refusal(NothingSelected, "sources.opinfo_has_no_float"):
        cases(source="opinfo:bitwise_and", dtype="float32")


@pytest.mark.heavy
def test_what_opinfo_needs_is_told_by_name() -> None:
    """In a process of its own, where expecttest is hidden."""
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
    """Whose memory nothing lies in, nobody can tell; running statistics of nothing are declared by nobody."""
    empty = [case for case in of_source(f"opinfo:{name}") if any(not each.spec.elements for each in case.inputs)]
    assert empty
    assert {case.id: status(case) for case in empty} == {case.id: Status.PASSED for case in empty}


def test_what_a_call_changes_beside_its_results_is_not_declared_as_one() -> None:
    found = of_source("opinfo:_batch_norm_with_update")
    assert {case.id: status(case) for case in found} == {case.id: Status.PASSED for case in found}


def test_the_gradient_of_nothing_is_nothing() -> None:
    empty = [
        case
        for case in of_source("opinfo:softmax,exp,matmul", backward=True)
        if any(not each.spec.elements for each in case.inputs)
    ]
    assert empty
    assert {case.id: status(case) for case in empty} == {case.id: Status.PASSED for case in empty}


def test_noise_divided_by_zero_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether two computations of a sum near 0 differ in sign depends on the processor, so both are given here."""
    own = np.array([complex(np.inf, 1.0), 2.0])
    leaves = [torch.from_numpy(own)]

    def is_noise(beside: list[complex]) -> bool:
        monkeypatch.setattr(trial_call, "_beside_float64", lambda *_: [(own, np.array(beside))])
        return trial_call._is_infinite_noise("", [], leaves)

    assert is_noise([complex(-np.inf, 1.0), 2.0])
    assert not is_noise([complex(np.inf, 1.0), 2.0])
    assert not is_noise([complex(3.0, 1.0), 2.0])


@pytest.mark.filterwarnings("ignore:cov")  # of one sample, which is left out on some processors
def test_samples_of_cov_pass_or_are_left_out_as_noise() -> None:
    left_out = [each["skip"] for each in entries("cov", dtypes=("complex128",)) if "skip" in each]
    assert all("noise around 0, divided by 0" in reason for reason in left_out)
    assert len(left_out) < 3
    run = [case for case in cases(source="opinfo:cov", dtype="complex128") if case.skip is None]
    assert run
    assert {case.id: status(case) for case in run} == {case.id: Status.PASSED for case in run}
