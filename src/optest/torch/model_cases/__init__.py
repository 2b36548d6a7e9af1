"""The dialect of model cases: torch calls traced from models, in the YAML of torch-spyre's RFC 0186.

A file of it becomes a plan before anything else looks at it, so that its cases are cases like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optest.plan.dialects import Facts, Translated
from optest.plan.yaml_source import Source
from optest.torch.model_cases.schema import model_cases_schema
from optest.torch.model_cases.translation import translated

__all__ = ["DIALECT", "ModelCases"]


class ModelCases:
    """See :class:`optest.plan.dialects.Dialect`."""

    backend = "torch"

    def is_written_in(self, data: Mapping[str, Any]) -> bool:
        return "model" in data

    def translated(self, source: Source, facts: Facts, below: Sequence[str] = ()) -> Translated:
        return translated(source, facts, below)

    def schema(self) -> dict[str, Any]:
        return model_cases_schema()


DIALECT = ModelCases()
