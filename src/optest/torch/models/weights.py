"""Weights of a model in a .safetensors file. What does not fit is said all at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from optest.errors import UsageError, shortened
from optest.generators.files import save_tensors, tensors_in_file
from optest.torch.models.adapters import TorchModel
from optest.torch.tensors import from_torch, to_read

_SHOWN = 8
_WIDE = dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)


def save_weights(model: TorchModel, path: Path) -> None:
    """Write the state dict of a model, atomically; a tensor with several names (tied weights) has the first one.

    Raises:
        UsageError: if the file cannot be written.
        Unavailable: without the package safetensors.
    """
    state = model.module.state_dict()
    aliases = _aliases(state)
    tensors = {name: from_torch(each) for name, each in state.items() if aliases[name] == name}
    save_tensors(tensors, path, model.name, format="pt")


def load_weights(module: torch.nn.Module, path: Path) -> tuple[str, ...]:
    """Copy the tensors of a file into a module, and return what is to be noted.

    Names may lack a prefix that all names of the module but ``lm_head`` have, as GPT-2's published checkpoint does.
    A tensor with several names needs one of them. float16 and bfloat16 are widened, exactly.

    Raises:
        UsageError: for a file that cannot be read, and for all names, shapes and dtypes that do not fit.
        Unavailable: without the package safetensors.
    """
    state = module.state_dict()
    if path.suffix != ".safetensors":
        raise UsageError(f"{path} is no .safetensors file")
    prefix = next(iter(state), "").partition(".")[0] + "."
    stored = {
        f"{prefix}{name}" if name not in state and f"{prefix}{name}" in state else name: to_read(each)
        for name, each in tensors_in_file(path)[0].items()
        if name in state or not _MASK.search(name)
    }
    aliases = _aliases(state)
    present = {aliases[name] for name in stored if name in state}
    missing = [name for name in state if aliases[name] not in present and not name.endswith("num_batches_tracked")]
    pairs = [(name, stored[name], state[name]) for name in stored if name in state]
    shapes = [_differs(name, list(a.shape), list(b.shape)) for name, a, b in pairs if a.shape != b.shape]
    dtypes = [_differs(name, a.dtype, b.dtype) for name, a, b in pairs if b.dtype not in (a.dtype, _WIDE.get(a.dtype))]
    untied = [name for name, theirs, _ in pairs if not torch.equal(theirs, stored.get(aliases[name], theirs))]
    problems = [
        *_listed("missing", missing),
        *_listed("unexpected", [name for name in stored if name not in state]),
        *_listed("shape", shapes),
        *_listed("dtype", dtypes),
        *_listed("differs from the name that it is tied to", untied),
    ]
    if problems:
        raise UsageError("\n  ".join([f"{path} does not fit the model", *problems]))
    narrow = {f"{a.dtype}".removeprefix("torch.") for _, a, b in pairs if a.dtype != b.dtype}
    for _, theirs, own in pairs:
        own.copy_(theirs)
    return tuple(f"weights of {path.name} are {each}, widened to float32" for each in sorted(narrow))


_MASK = re.compile(r"\.attn\.(masked_)?bias$")
"""Causal masks, which old checkpoints of GPT-2 hold."""


def _aliases(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return for each name the first one of the same elements in the same memory; a transposed view differs."""
    first: dict[object, str] = {}
    layouts = {name: (each.data_ptr(), each.shape, each.stride(), each.dtype) for name, each in state.items()}
    return {name: first.setdefault(layout, name) for name, layout in layouts.items()}


def _differs(name: str, theirs: Any, own: Any) -> str:
    return f"{name} is {theirs}, expected {own}".replace("torch.", "")


def _listed(title: str, items: list[str]) -> list[str]:
    """One line for all of a kind."""
    return [f"{title}: {shortened(items, _SHOWN)}"] if items else []
