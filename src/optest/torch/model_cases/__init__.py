"""The dialect of model cases: torch calls of models in torch-spyre's YAML (RFC 0186, test_suite_config)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optest.torch.model_cases.schema import model_cases_schema
from optest.torch.model_cases.suite_config import TOP
from optest.torch.model_cases.translation import translated

__all__ = ["DIALECT", "ModelCases"]


class ModelCases:
    """:class:`optest.plan.dialects.Dialect` of model cases."""

    backend = "torch"
    schema = staticmethod(model_cases_schema)
    translate = staticmethod(translated)

    def matches(self, data: Mapping[str, Any]) -> bool:
        return "model" in data or TOP in data


DIALECT = ModelCases()
