"""Several plans on one command line: a plan that includes them all, kept beside the runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.errors import UsageError
from optest.plan import open_plan
from optest.settings import resolve
from optest.store import write_atomically

__all__ = ["one_plan"]


def one_plan(paths: Sequence[str], given: Mapping[str, Any]) -> str:
    """The path of the plan, which is the only one of ``paths`` or includes them all; backend and chip are those that
    they agree on.

    Raises:
        UsageError, PlanError: if one of several cannot be read, or is not trusted.
    """
    if len(paths) == 1:
        return paths[0]
    settings = resolve(given)
    if settings["untrusted"]:
        raise UsageError("--untrusted opens what lies in the folder of one plan; state one")
    options = [open_plan(path).options() for path in paths]
    shared = {key: options[0].get(key) for key in ("backend", "chip") if len({each.get(key) for each in options}) == 1}
    folder = Path(settings["runs_dir"]).parent / "plans"
    document = {**shared, "include": [os.path.relpath(path, folder) for path in paths]}
    text = json.dumps({key: value for key, value in document.items() if value}).encode()  # JSON is YAML
    plan = folder / f"{hashlib.blake2b(text, digest_size=4).hexdigest()}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(plan, text)
    return str(plan)
