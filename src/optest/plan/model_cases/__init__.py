"""The dialect of model cases: torch calls traced from models, in the YAML of torch-spyre's RFC 0186.

A file of it becomes a plan before anything else looks at it, so that its cases are cases like any other.
"""

from __future__ import annotations

from optest.plan.model_cases.schema import model_cases_schema
from optest.plan.model_cases.translation import is_model_file, translated

__all__ = ["is_model_file", "model_cases_schema", "translated"]
