"""Save the weights of a model to a .safetensors file and load them; all mismatches are reported in one error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from optest.errors import UsageError, shortened
from optest.generators.files import save_tensors, tensors_in_file
from optest.torch.models.torch_model import TorchModel
from optest.torch.tensors import from_torch, to_read

_MAX_NAMES = 8
_WIDE = dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)


def save_weights(model: TorchModel, path: Path) -> None:
    """Write the state dict of a model, atomically; a tensor with several names (tied weights) has the first one.

    Raises:
        UsageError: if the file cannot be written.
        Unavailable: if safetensors is not installed.
    """
    state = model.module.state_dict()
    aliases = _aliases(state)
    tensors = {name: from_torch(tensor) for name, tensor in state.items() if aliases[name] == name}
    save_tensors(tensors, path, model.name, format="pt")


def load_weights(module: torch.nn.Module, path: Path) -> tuple[str, ...]:
    """Copy the tensors of a .safetensors file into a module; return a note for each dtype that was widened.

    Names may lack the module's common prefix, as in GPT-2's published checkpoint. A tied tensor needs only one of its
    names. float16 and bfloat16 are widened, exactly.

    Raises:
        UsageError: if the file cannot be read; with all names, shapes and dtypes that do not fit.
        Unavailable: if safetensors is not installed.
    """
    state = module.state_dict()
    if path.suffix != ".safetensors":
        raise UsageError(f"{path} is no .safetensors file")
    prefix = next(iter(state), "").partition(".")[0] + "."
    stored = {
        f"{prefix}{name}" if name not in state and f"{prefix}{name}" in state else name: to_read(array)
        for name, array in tensors_in_file(path)[0].items()
        if name in state or not _MASK.search(name)
    }
    aliases = _aliases(state)
    present = {aliases[name] for name in stored if name in state}
    pairs = [(name, stored[name], state[name]) for name in stored if name in state]
    widened = [(name, a, b) for name, a, b in pairs if a.dtype != b.dtype]
    # A counter that only training uses; published checkpoints may lack it.
    counter = "num_batches_tracked"
    mismatches = {
        "missing": [name for name in state if aliases[name] not in present and not name.endswith(counter)],
        "unexpected": [name for name in stored if name not in state],
        "shape": [_mismatch(name, list(a.shape), list(b.shape)) for name, a, b in pairs if a.shape != b.shape],
        "dtype": [_mismatch(name, a.dtype, b.dtype) for name, a, b in widened if b.dtype != _WIDE.get(a.dtype)],
        "differs from the name that it is tied to": [
            name for name, tensor, _ in pairs if not torch.equal(tensor, stored.get(aliases[name], tensor))
        ],
    }
    problems = [f"{title}: {shortened(names, _MAX_NAMES)}" for title, names in mismatches.items() if names]
    if problems:
        raise UsageError("\n  ".join([f"{path} does not fit the model", *problems]))
    for _, tensor, parameter in pairs:
        parameter.copy_(tensor)
    narrow = {f"{tensor.dtype}".removeprefix("torch.") for _, tensor, _ in widened}
    return tuple(f"weights of {path.name} are {kind}, widened to float32" for kind in sorted(narrow))


# Causal masks, which old checkpoints of GPT-2 contain.
_MASK = re.compile(r"\.attn\.(masked_)?bias$")


def _aliases(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Map each name to the first name of the same elements in the same memory; a transposed view has other ones."""
    first: dict[object, str] = {}
    layouts = {name: (x.data_ptr(), x.shape, x.stride(), x.dtype) for name, x in state.items()}
    return {name: first.setdefault(layout, name) for name, layout in layouts.items()}


def _mismatch(name: str, actual: Any, expected: Any) -> str:
    return f"{name} is {actual}, expected {expected}".replace("torch.", "")
