"""``profile`` is another name of ``mapping`` in a plan's options of a C library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from texts import refusal

from optest.api import cases
from optest.clib.library.config import read_ffi_config
from optest.errors import PlanError

PLAN = """\
backend: ffi
cases:
  - op: gemm
    dtypes: [float16, float16]
    shapes: {a: [4, 6], b: [6, 2]}
    backend_config: {ffi: {library: nowhere, {stated}, device: cpu}}
"""


def asked(folder: Path, stated: str, **options: Any) -> Any:
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.replace("{stated}", stated))
    return cases(plan=str(plan), **options)


def test_a_profile_is_a_mapping(tmp_path: Path) -> None:
    (case,) = asked(tmp_path, "profile: infiniop")
    config, problems = read_ffi_config(case)
    assert problems == []
    assert config is not None
    assert config.mapping.name == "infiniop"


def test_mapping_and_profile_must_agree(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"profile is 'cblas', but mapping is 'infiniop'; .*write only one"):
        asked(tmp_path, "profile: cblas, mapping: infiniop")
    assert len(asked(tmp_path, "profile: infiniop, mapping: infiniop")) == 1


def test_an_untrusted_profile_is_refused(tmp_path: Path) -> None:
    with refusal(PlanError, "backends.untrusted_refuses_what_the"):
        asked(tmp_path, "profile: infiniop", untrusted=True)
