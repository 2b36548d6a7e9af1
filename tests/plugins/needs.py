"""Components that a machine may lack, and the reason for which a test or a page is skipped without them.

A marker of a test, the ``<!-- needs: … -->`` of a page and the import of a test module all use these rules.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
from pathlib import Path

MARKERS = {"blas": "gcc openblas", "cxx": "gcc g++ make", "torch": "torch"}
"""Markers and the components that their tests need; ``needs("…")`` names any others itself."""

DEBIAN = {
    "openblas": "libopenblas-dev",
    "gtest": "libgtest-dev",
    "liquid": "libliquid-dev",
    "opencl": "pocl-opencl-icd, and pip install pyopencl",
}
"""Packages of components that are not named like them."""

_requirements = (Path(__file__).parents[2] / "requirements-test.txt").read_text(encoding="utf-8")
OPTIONAL = frozenset(re.findall(r"^(\w+)", _requirements.partition("# Optional")[2], re.M))
"""Python packages without which tests are skipped; without those above them there are no tests."""
_TOO_LARGE = frozenset({"triton"})
"""Python packages that the requirements leave out."""


@functools.cache
def missing(needs: str) -> str:
    """Return which of these components is absent and how to install it; empty if all are there."""
    for component in needs.split():
        if not _is_there(component):
            if "REQUIRE_COMPONENTS" in os.environ and component not in _TOO_LARGE:
                raise LookupError(f"{component} is absent where .ci/run has installed every component")
            is_package = component in OPTIONAL | _TOO_LARGE
            return f"needs {component}: {'pip' if is_package else 'apt-get'} install {DEBIAN.get(component, component)}"
    return ""


def _is_there(component: str) -> bool:
    """Return whether this machine has a component with special rules, a program or a module."""
    match component:
        case "openblas":
            return _has_library("libopenblas.so.0") and _has_header("cblas.h")
        case "liquid":
            return _has_library("libliquid.so") and _has_header("liquid/liquid.h")
        case "gtest":
            return _has_header("gtest/gtest.h")
        case "chromium":
            return any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
        case "opencl":
            return _has_opencl_device()
    return shutil.which(component) is not None or importlib.util.find_spec(component) is not None


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _has_header(name: str) -> bool:
    return any(Path("/usr").glob(f"include/{name}")) or any(Path("/usr").glob(f"include/*/{name}"))


def _has_opencl_device() -> bool:
    if importlib.util.find_spec("pyopencl") is None:
        return False
    import pyopencl

    try:
        return any(platform.get_devices() for platform in pyopencl.get_platforms())
    except pyopencl.Error:  # no platform at all
        return False
