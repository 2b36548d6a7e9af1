"""A backend is found by name, kind and chip, and never another one in its place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from texts import refusal

import optest.backends
import optest.spec
from optest.backends import _BUILTINS, BackendDriver, BackendManager, declared_numerics
from optest.errors import Unavailable, UnknownName, UsageError
from optest.spec import Numerics


class Gpu(BackendDriver):
    name = "my-gpu"
    kind = "gpu"
    chips = ("a100", "h100")

    def run(self, case: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs


def gpu(**changes: Any) -> BackendDriver:
    """Return an instance of a driver like Gpu with other class attributes."""
    driver: BackendDriver = type("Changed", (Gpu,), changes)()
    return driver


class Idle(BackendDriver):
    name = "idle"


class Into(BackendDriver):
    name = "into"

    def run_into(self, case: Any, inputs: Any, outputs: Any) -> None:
        return None


@pytest.fixture
def manager() -> BackendManager:
    return BackendManager(_BUILTINS)


def test_npu_selects_ascend_driver(manager: BackendManager) -> None:
    """The predecessor passed all of these on its stub, whatever the command did."""
    assert manager.select("npu").name == "ascend"
    for chip in ("ascend", "ascend910b", "Ascend910B", "ASCEND310P3", "ascend950"):
        assert manager.select("npu", chip).name == "ascend"
        assert manager.select("ascend", chip).name == "ascend"


@pytest.mark.parametrize("wanted", ["npu", "ascend"])
def test_a_chip_that_nobody_has_is_refused(manager: BackendManager, wanted: str) -> None:
    with pytest.raises(UnknownName, match=r"unknown chip of backend .* 'totally-bogus'") as caught:
        manager.select(wanted, "totally-bogus")
    assert "ascend910b" in str(caught.value)


@pytest.mark.parametrize("name", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_backend_without_chips_takes_none(manager: BackendManager, name: str) -> None:
    with refusal(UnknownName, "backends.it_takes_no_chip"):
        manager.select(name, "ascend910b")


def test_backends_are_selected_by_name_only(manager: BackendManager) -> None:
    for wanted in ("gpu", "cuda", "stb"):
        with pytest.raises(UnknownName):
            manager.select(wanted)
    assert manager.select("stub", "any chip").name == "stub"
    with pytest.raises(UnknownName) as caught:
        manager.select("asend")
    assert caught.value.suggestion == "ascend"
    assert {"numpy", "torch", "ascend", "npu", "cpu"} <= set(caught.value.known)


def test_user_driver_is_selected_by_kind_and_chip(manager: BackendManager) -> None:
    manager.register(Gpu())
    assert manager.select("gpu").name == "my-gpu"
    manager.register(gpu(name="other-gpu", chips=("mi300",)))
    assert manager.select("gpu", "mi300").name == "other-gpu"
    assert manager.select("gpu", "a100").name == "my-gpu"
    with refusal(UsageError, "backends.is_my_gpu_other"):
        manager.select("gpu")
    with pytest.raises(UnknownName) as caught:
        manager.select("gpu", "A100")
    assert caught.value.suggestion == "a100"


def test_driver_registered_by_path_has_kind(manager: BackendManager) -> None:
    manager.register_path("my-gpu", f"{__name__}:Gpu")
    assert "my-gpu" in manager.names()
    assert manager.select("gpu", "h100").name == "my-gpu"
    manager.register_path("mine", f"{__name__}:Gpu")
    with refusal(UsageError, "backends.registered_for_driver_that"):
        manager.select("mine")


def test_user_driver_precedes_builtin_for_its_chips(manager: BackendManager) -> None:
    manager.register(gpu(name="my-npu", kind="npu", chips=("n1",)))
    selected = [manager.select("npu", *chip).name for chip in ((), ("n1",), ("ascend910b",))]
    assert selected == ["my-npu", "my-npu", "ascend"]


def test_plugin_without_framework_hides_no_others(
    manager: BackendManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking_plugin.py").write_text("import a_framework_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    manager.register_path("lacking", "lacking_plugin:Driver")
    assert manager.select("npu").name == "ascend"
    message = r"^backend lacking is unavailable: pip install a_framework_that_is_not_installed"
    with pytest.raises(Unavailable, match=message):
        manager.select("lacking")


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (gpu(name=""), "has no name"),
        (gpu(chips="a100"), "expected a tuple of names"),
        (Idle(), "neither `run` nor `run_into`"),
        (gpu(api=2), "api = 2"),
        (gpu(numerics=Numerics(denormals="Flush")), "denormals = 'Flush', expected one of 'preserve', 'flush'"),
        (gpu(numerics=Numerics(accumulator="int8")), "numerics.accumulator = 'int8'"),
        (gpu(numerics=None), "numerics = None"),
        (Gpu, "is the class Gpu, expected an instance"),
        (object(), "is a object, expected an instance"),
    ],
)
def test_defective_driver_is_refused_on_registration(manager: BackendManager, driver: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        manager.register(driver)


def test_a_name_is_taken_once_unless_replaced(manager: BackendManager) -> None:
    assert manager.register(Into()).name == "into"  # run_into without run is enough
    manager.register(Gpu())
    with pytest.raises(UsageError, match="registered already"):
        manager.register(Gpu())
    with pytest.raises(UsageError, match="registered already"):
        manager.register_path("ascend", "x:y")
    replacement = Gpu()
    assert manager.register(replacement, replace=True) is replacement
    assert manager.select("gpu") is replacement


def test_imports_of_backends() -> None:
    script = "import sys; from optest.backends import backend_manager; backend_manager.names()\n"
    script += "assert not {'torch', 'numpy', 'ml_dtypes'} & set(sys.modules), 'imported too early'"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert optest.backends.Numerics is optest.spec.Numerics
    assert {"BackendDriver", "Fault", "Numerics", "Reason", "backend_manager"} <= set(optest.backends.__all__)


@pytest.mark.parametrize(
    ("driver", "processor"), [(Idle(), "cpu"), (Gpu(), "accelerator"), (gpu(numerics=Numerics(processor="cpu")), "cpu")]
)
def test_processor_of_a_kind(driver: BackendDriver, processor: str) -> None:
    case: Any = None
    assert declared_numerics(driver, case).processor == processor
    assert declared_numerics(driver, case) is declared_numerics(driver, case)
