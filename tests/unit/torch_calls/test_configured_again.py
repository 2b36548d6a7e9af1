"""One process asks the driver several times: what an earlier one was told does not hold for the next."""

from __future__ import annotations

import pytest
from torch_kit import case, tensor

from optest.core.runner import execute
from optest.errors import UnknownName
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

ADD = case("torch.add(input0, input0)", tensor(3))


def is_compiled(driver: TorchBackend) -> bool:
    return execute([ADD], driver).timings.compile_s is not None


@pytest.mark.parametrize("options", [{}, {"compile_backend": None}, {"compile_backend": "eager"}])
def test_what_states_no_compiler_compiles_nothing(options: dict[str, str | None]) -> None:
    driver = TorchBackend()
    driver.configure({"compile_backend": "aot_eager"})
    assert is_compiled(driver)
    driver.configure(options)
    assert not is_compiled(driver)


def test_a_device_is_the_cpu_again_where_none_is_stated() -> None:
    import torch

    driver = TorchBackend()
    driver._device = torch.device("meta")
    driver.configure({})
    assert driver.device() == "cpu"


def test_options_that_are_refused_change_nothing() -> None:
    driver = TorchBackend()
    driver.configure({"compile_backend": "aot_eager"})
    with pytest.raises(UnknownName):
        driver.configure({"compile_backend": "aot_eagre"})
    assert is_compiled(driver)
