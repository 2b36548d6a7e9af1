"""Devices that other packages register with torch: ``--torch-device`` accepts their names."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from texts import says

from optest.errors import Unavailable, UnknownName
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

REGISTERED = """
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("optestium")
from optest.torch.eager import TorchBackend
driver = TorchBackend()
for device in ("optestium", "optestium:0"):
    driver.configure({"torch_device": device})
    print(driver.device())
try:
    driver.configure({"torch_device": "optestium:7"})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.heavy
def test_registered_device_opens() -> None:
    # In another process, since torch cannot unregister the device.
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch makes no device of Python")
    ran = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["optestium:0", "optestium:0"]
    assert says(lines[2], "backends.this_machine_has_optestium")


def test_unregistered_device_is_unknown() -> None:
    with pytest.raises(UnknownName, match="optestium"):
        TorchBackend().configure({"torch_device": "optestium"})


def test_known_device_names_its_package() -> None:
    if str(torch._C._get_privateuse1_backend_name()) == "spyre":
        pytest.skip("it is there")
    with pytest.raises(Unavailable, match="torch_spyre"):
        TorchBackend().configure({"torch_device": "spyre"})
