"""What a scene may say, and what is said of one that is wrong."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from optest.errors import UsageError
from optest.scenes import Scalar, SceneTestCase, TaskArgs, Tensor, scene_test
from optest.scenes.declaration import GUARD


def test_arguments_are_attributes_tensors_first() -> None:
    args = TaskArgs(Tensor("x", np.ones(2)), Tensor("y", np.zeros(2)), Scalar("n", ctypes.c_int64(3)), Scalar("r", 0.5))
    args.y[:] = args.x + 1
    assert (args.tensor_names(), args.scalar_names()) == (["x", "y"], ["n", "r"])
    assert [spec.name for spec in args.specs] == ["x", "y", "n", "r"]
    assert args.specs[1].value.tolist() == [2, 2]


def test_a_clone_shares_no_memory() -> None:
    args = TaskArgs(Tensor("x", np.ones(2)), Scalar("n", ctypes.c_int64(3)))
    other = args.clone()
    args.x[:] = 5
    args.n.value = 5
    assert (other.x.tolist(), other.n.value) == ([1, 1], 3)


def test_a_clone_of_torch_is_of_torch() -> None:
    torch = pytest.importorskip("torch")
    args = TaskArgs(Tensor("x", torch.ones(2)))
    other = args.clone()
    args.x[:] = 5
    assert isinstance(other.x, torch.Tensor)
    assert other.x.tolist() == [1, 1]


X = Tensor("x", np.ones(2))


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([X, Tensor("x", np.ones(2))], "two arguments have the name 'x'"),
        ([X, Scalar("x", 1)], "two arguments have the name 'x'"),
        ([Tensor("specs", np.ones(2))], "'specs', expected one that can be an attribute"),
        ([Scalar("clone", 1)], "'clone', expected one that can be an attribute"),
        ([Tensor("a b", np.ones(2))], "'a b', expected one that can be an attribute"),
        ([Tensor("_names", np.ones(2))], "'_names', expected one that can be an attribute"),
        ([Scalar("n", 1), X], "tensor 'x' is after a scalar; put tensors first"),
        ([X, np.ones(2)], r"an argument is ndarray, expected Tensor\(…\) or Scalar\(…\)"),
    ],
)
def test_wrong_arguments(specs: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TaskArgs(*specs)


def declared(
    case: Any = None, *, cases: Any = None, skip_golden: bool = False, **decorator: Any
) -> type[SceneTestCase]:
    """A class with one case, of which ``case`` replaces keys, or with ``cases``."""
    cases = [{"name": "default", **(case or {})}] if cases is None else cases
    made = type("TestFoo", (SceneTestCase,), {"CASES": cases, "SKIP_GOLDEN": skip_golden, "__module__": __name__})
    return scene_test(**{"platforms": ["cpusim", "cuda"], **decorator})(made)


def test_case_runs_on_platforms_of_both() -> None:
    assert declared({"platforms": ["cuda", "a2a3"]})._scene_cases[0].platforms == ("cuda",)
    assert declared({"platforms": ["a2a3"]}, platforms=None)._scene_platforms == ("a2a3",)
    assert declared()._scene_cases[0].platforms == declared()._scene_platforms == ("cpusim", "cuda")


def test_defaults_of_a_case() -> None:
    (case,) = declared()._scene_cases
    assert (case.config, case.params, case.manual, case.device_count, case.timeout) == ({}, {}, False, 1, None)


def test_config_may_hold_device_count() -> None:
    assert declared({"config": {"device_count": 4}}, level=3)._scene_cases[0].device_count == 4


@pytest.mark.parametrize(
    ("manual", "on_sim", "on_cuda"),
    [(False, False, False), (True, True, True), ("cuda", False, True), (["cpusim"], True, False)],
)
def test_manual_everywhere_or_on_some_platforms(manual: Any, on_sim: bool, on_cuda: bool) -> None:
    (case,) = declared({"manual": manual})._scene_cases
    assert (case.is_manual_on("cpusim"), case.is_manual_on("cuda")) == (on_sim, on_cuda)


def test_a_case_says_more_than_its_class() -> None:
    cases = [{"name": "a"}, {"name": "b", "skip_golden": False}]
    assert [case.skip_golden for case in declared(cases=cases, skip_golden=True)._scene_cases] == [True, False]


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"level": 4}, "level is 4, expected one of 2, 3"),
        ({"case": {"name": ""}}, "case 1 of TestFoo: name is '', expected a text without :: and brackets"),
        ({"case": {"name": "a::b"}}, "name is 'a::b', expected"),
        ({"case": {"name": "a[0]"}}, r"name is 'a\[0\]', expected"),
        ({"case": {"name": None}}, "name is None, expected"),
        ({"case": {"parms": {}}}, "unknown key 'parms'; did you mean 'params'"),
        ({"case": {"platforms": "cpusim"}}, "platforms is 'cpusim', expected a list of names"),
        ({"platforms": None}, "platforms is None, expected a list of names, here or in @scene_test"),
        ({"case": {"platforms": ["a5"]}}, r"its platforms \(a5\) include none of the class \(cpusim, cuda\)"),
        ({"case": {"device_count": 0}, "level": 3}, "device_count is 0, expected 1 or more"),
        ({"case": {"device_count": "2"}, "level": 3}, "device_count is '2', expected 1 or more"),
        ({"case": {"device_count": 2}, "level": 2}, "a scene of level 2 has one device; set level=3"),
        ({"cases": []}, "TestFoo has no CASES"),
        ({"cases": ["default"]}, "case 1 of TestFoo is str, expected a mapping"),
        ({"cases": [{"name": "a"}, {"name": "a"}]}, "two cases of TestFoo have the name 'a'"),
    ],
)
def test_wrong_declarations(declaration: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        declared(**declaration)


def test_scene_fails_without_plugin() -> None:
    with pytest.raises(AssertionError, match=r"add `addopts = -p optest\.pytest_plugin`"):
        getattr(declared(), GUARD)()


def test_run_module_ignores_imported_module() -> None:
    SceneTestCase.run_module(__name__)
