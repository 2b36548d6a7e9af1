"""From the name of a model to what cases of it state: files for runtimes of ONNX, the name itself for torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from optest.errors import UsageError
from optest.generators.files import save_tensors
from optest.models.subjects import Subject, moved, subject_of_file
from optest.registry import load_object
from optest.settings import resolve
from optest.store import write_atomically

__all__ = ["is_file", "opened", "stated_models", "torch_model"]


def is_file(name: str) -> bool:
    """Whether a model is a file of ONNX."""
    return name.endswith(".onnx")


def stated_models(given: Mapping[str, Any], *, for_torch: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """What cases state of the model that a command names, with a word for it: once for each way to draw its weights.

    For runtimes of ONNX a model of torch is exported into a file, beside its inputs and its outputs by torch.

    Raises:
        UsageError: for a name, a configuration or weights that do not fit.
        Fault: COMPILE if the export fails.
    """
    what, config = given["what"], ",".join(given["config"])
    inputs = str(Path(given["inputs"]).absolute()) if given["inputs"] else ""
    if is_file(what):
        if for_torch:
            raise UsageError(f"backend torch runs models of torch, but {what} is a file of ONNX")
        if given["preset"] or given["weights"]:
            raise UsageError(f"{what} is a file of ONNX, which has its weights")
        path = Path(what)
        digest = hashlib.blake2b(path.read_bytes() if path.is_file() else b"", digest_size=8).hexdigest()
        yield path.stem, {"file": path.as_posix(), "inputs": inputs, "sizes": config, "digest": digest}
        return
    weights = str(Path(given["weights"]).absolute()) if given["weights"] else ""
    presets = load_object("optest.torch.models.adapters:presets_of")(what, Path(weights) if weights else None)
    for preset in [given["preset"]] if given["preset"] else presets:
        named = {"model": what, "config": config, "preset": preset, "weights": weights, "inputs": inputs}
        name = "/".join(each for each in (what.rpartition(":")[2], preset) if each)
        yield name, named if for_torch else _exported(named, given)


def _exported(named: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, str]:
    model = torch_model(named, given["seed"])
    content, arrays, outputs = load_object("optest.torch.models.programs:exported_model")(
        model, named["inputs"], given["seed"], moved
    )
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    folder = Path(resolve(given)["runs_dir"]).parent / "models" / f"{named['model'].replace(':', '-')}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "model.onnx", content)
    save_tensors(arrays, folder / "inputs.safetensors", named["model"])
    save_tensors(outputs, folder / "expected.safetensors", named["model"])
    files = {"file": "model.onnx", "inputs": "inputs.safetensors", "expected": "expected.safetensors"}
    return {
        **{name: (folder / file).as_posix() for name, file in files.items()},
        "digest": digest,
        "causal": "yes" * model.causal,
    }


def torch_model(stated: Mapping[str, str], seed: int) -> Any:
    """The model of torch that cases name."""
    return load_object("optest.torch.models.adapters:opened_model")(
        stated["model"],
        config=dict(_entries(stated["config"])),
        preset=stated["preset"],
        weights=Path(stated["weights"]) if stated["weights"] else None,
        seed=seed,
    )


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    for each in text.split(","):
        name, equals, value = each.partition("=")
        if each and not equals:
            raise UsageError(f"--config is {each!r}, but should be KEY=VALUE")
        if each:
            yield name, _scalar(value)


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@lru_cache(maxsize=4)
def opened(key: tuple[tuple[str, str], ...], seed: int) -> Subject:
    """The subject of cases that state ``key``."""
    stated = dict(key)
    if stated["file"]:
        return subject_of_file(stated["file"], stated["inputs"], stated["sizes"], seed)
    model = torch_model(stated, seed)
    graph, feeds = load_object("optest.torch.models.programs:graph_with_inputs")(model, stated["inputs"], seed)
    return Subject(graph, feeds, model)
