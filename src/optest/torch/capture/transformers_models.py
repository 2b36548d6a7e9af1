"""Models of Hugging Face's transformers by their class: ``hf:GPT2LMHeadModel``, with random weights."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from optest.errors import Unavailable, UsageError, nearest
from optest.registry import load_object
from optest.torch.capture.transformers_inputs import inputs_of

__all__ = ["opened"]

_REMEDY = "pip install optest[models]; or capture a script of your own: optest capture model.py:forward"


def opened(name: str, config: Mapping[str, Any]) -> Callable[[], object]:
    """The forward of a model of that class on inputs of its kind: token ids, pixels, or sound.

    Raises:
        Unavailable: if transformers is not installed.
        UsageError: for a class or a key of its configuration that does not exist, or other kinds of input.
    """
    library = _library()
    kind = getattr(library, name, None)
    configuration = getattr(kind, "config_class", None)
    if kind is None or configuration is None:
        near = nearest(name, [each for each in dir(library) if each[0] != "_"])
        hint = f"; did you mean hf:{near}?" if near else ""
        raise UsageError(f"transformers has no model {name}{hint}")
    stated = configuration()
    for key in config:
        if not hasattr(stated, key):
            near = nearest(key, list(vars(stated)))
            raise UsageError(f"{configuration.__name__} has no {key}" + (f"; did you mean {near}?" if near else ""))
    stated = configuration(**config)  # not set one by one: some follow from others, as the width of a head does
    model = kind(stated).eval()
    given = inputs_of(model, stated, name)

    def forward() -> object:
        with torch.no_grad():
            return model(**given)

    return forward


def _library() -> Any:
    try:
        load_object("transformers:__version__")
    except (UsageError, Unavailable):
        raise Unavailable("transformers, which hf: needs,", _REMEDY) from None
    return sys.modules["transformers"]
