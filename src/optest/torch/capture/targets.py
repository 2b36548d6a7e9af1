"""What a user names to be captured: ``FILE.py``, ``FILE.py:FUNCTION``, ``module:function`` or ``hf:CLASS``."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from optest import registry
from optest.errors import OptestError, Unavailable, UsageError, did_you_mean, nearest
from optest.registry import load_file, load_object, run_file
from optest.torch.capture.places import TORCH_AND_OURS, shown_path

__all__ = ["Target", "model_code", "opened"]


class Target(NamedTuple):
    """Something to run; ``stem`` is a name for its model."""

    stem: str
    run: Callable[[], object]


_TRY = "run it without optest first"


@contextmanager
def opened(what: str, config: Mapping[str, Any]) -> Iterator[Target]:
    """Yield the target with whatever it needs loaded; files beside a script can be imported meanwhile.

    Raises:
        UsageError: if there is no such file or function, it needs arguments, or its code raises while it loads.
        Unavailable: if it needs a package that is not installed.
    """
    if what.startswith("hf:"):
        name = what.removeprefix("hf:")
        with model_code(what):
            run = _forward_of(name, config)
        yield Target(stem=name, run=run)
        return
    if config:
        raise UsageError(f"--config goes with hf:CLASS, but {what} builds its model itself")
    file, function = _parts(what)
    if file is None:
        with model_code(what):
            found = load_object(what)
        yield Target(stem=what.rpartition(":")[0].rpartition(".")[2], run=_without_arguments(found, what))
        return
    path = _existing(file, what)
    sys.path.insert(0, str(path.parent.resolve()))
    arguments, sys.argv = sys.argv, [file]  # as of `python model.py`, and not those of optest
    try:
        if function is None:
            yield Target(stem=path.stem, run=lambda: run_file(path))
            return
        with model_code(what):
            module = load_file(path)
        yield Target(stem=path.stem, run=_without_arguments(_attribute(module, function, file), what))
    finally:
        sys.argv = arguments
        sys.path.remove(str(path.parent.resolve()))


def _parts(what: str) -> tuple[str | None, str | None]:
    """File and function; no file for ``module:function``."""
    file, colon, function = what.rpartition(":")
    if colon and file.endswith(".py"):
        return file, function
    if what.endswith(".py") or "/" in what or Path(what).is_file():
        return what, None
    if not colon:
        raise UsageError(
            f"{what!r} is nothing that can be captured\n"
            "  name a script (model.py), a function of one (model.py:forward) or of a module (package.model:forward), "
            "or hf:CLASS"
        )
    return None, function


def _existing(file: str, what: str) -> Path:
    path = Path(file)
    if path.is_dir():
        raise UsageError(f"{file} is a folder; name a file of it: {file.rstrip('/')}/model.py:forward")
    if not path.is_file():
        known = sorted(path.parent.glob("*.py")) if path.parent.is_dir() else []
        near = nearest(path.name, [each.name for each in known])
        hint = f"; did you mean {path.parent / near}?" if near else ""
        raise UsageError(f"there is no file {file}{hint}\n  wanted by {what!r}")
    if path.suffix not in ("", ".py"):
        raise UsageError(f"{file} is no file of Python; name the script that runs the model")
    return path


def _attribute(module: Any, function: str, file: str) -> Any:
    found = module
    for part in function.split("."):
        if not hasattr(found, part):
            own = [name for name, each in vars(module).items() if inspect.isroutine(each) and name[0] != "_"]
            listed = f"; it has {', '.join(own)}" if own else ""
            hint = did_you_mean(part, own, listed, text="; did you mean {}?")
            raise UsageError(f"{file} has no {function}{hint}")
        found = getattr(found, part)
    return found


def _without_arguments(found: Any, what: str) -> Callable[[], object]:
    if not callable(found):
        raise UsageError(f"{what} is {type(found).__name__}, but should be a function that takes no arguments")
    function: Callable[[], object] = found
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function
    needed = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if needed:
        name = re.sub(r".*[:.]", "", what)
        raise UsageError(
            f"{what} takes {', '.join(needed)}, but capture calls it without arguments\n"
            f"  write a function that makes them: def captured(): return {name}(...)"
        )
    return function


@contextmanager
def model_code(what: str) -> Iterator[None]:
    """Run code of the user's; what it raises is said with its line, and SystemExit without a status ends it.

    Raises:
        UsageError: for whatever the code raises.
    """
    try:
        yield
    except OptestError:
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            raise UsageError(f"{what} ended with status {error.code}; nothing was written\n  {_TRY}") from None
    except Exception as error:  # border: a model may raise anything
        text = f"{what} raised {type(error).__name__}: {error}"
        raise UsageError(f"{text}{_frames(error)}\n  nothing was written; {_TRY}") from error


_NOT_THE_MODEL = ("<frozen ", *TORCH_AND_OURS, registry.__file__, runpy.__file__)


def _frames(error: Exception) -> str:
    """The last lines of the model's own code, nearest last."""
    if isinstance(error, SyntaxError):
        return f"\n  at {error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(_NOT_THE_MODEL)
    ]
    return "".join(
        f"\n  at {shown_path(each.filename)}:{each.lineno}, in {each.name}: {each.line}" for each in frames[-3:]
    )


# Models of Hugging Face's transformers by their class: ``hf:GPT2LMHeadModel``, with random weights.


_REMEDY = "pip install optest[models]; or capture a script of your own: optest capture model.py:forward"


def _forward_of(name: str, config: Mapping[str, Any]) -> Callable[[], object]:
    """The forward of a model of that class on inputs of its kind: token ids, pixels, or sound.

    Raises:
        Unavailable: if transformers is not installed.
        UsageError: for a class or a key of its configuration that does not exist, or other kinds of input.
    """
    library = _library()
    kind = getattr(library, name, None)
    configuration = getattr(kind, "config_class", None)
    if kind is None or configuration is None:
        public = [each for each in dir(library) if each[0] != "_"]
        hint = did_you_mean(name, public, text="; did you mean hf:{}?")
        raise UsageError(f"transformers has no model {name}{hint}")
    stated = configuration()
    for key in config:
        if not hasattr(stated, key):
            hint = did_you_mean(key, vars(stated), text="; did you mean {}?")
            raise UsageError(f"{configuration.__name__} has no {key}{hint}")
    stated = configuration(**config)  # not set one by one: some follow from others, as the width of a head does
    model = kind(stated).eval()
    given = _inputs_of(model, stated, name)

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


# Inputs for a model of Hugging Face's transformers, made up from what its forward takes and its configuration says.

_TOKENS = (1, 16)
_SAMPLES = 4000
"""Of raw sound: a quarter of a second at 16 kHz."""

_IMAGE = 64
"""Pixels of a side, where a model takes images of any size."""


def _inputs_of(model: Any, config: Any, name: str) -> dict[str, torch.Tensor]:
    """The tensors that the model's forward needs, by name.

    Raises:
        UsageError: if one of them is of another kind.
    """
    main = getattr(model, "main_input_name", "input_ids")
    takes = inspect.signature(model.forward).parameters
    needed = [main]
    if "pixel_values" in takes and hasattr(config, "vision_config"):
        needed.append("pixel_values")
    if "decoder_input_ids" in takes and getattr(config, "is_encoder_decoder", False):
        needed.append("decoder_input_ids")
    given = {}
    for each in needed:
        made = _MAKERS.get(each, lambda _: None)(config)
        if made is None:
            raise UsageError(
                f"{name} takes {each}, which hf: cannot make up\n"
                "  write a script that does, and capture that: optest capture model.py:forward -o model.yaml"
            )
        given[each] = made
    return given


def _tokens(config: Any) -> torch.Tensor | None:
    size = _config_value(config, "text_config", "vocab_size")
    return None if size is None else torch.randint(size, _TOKENS)


def _pixels(config: Any) -> torch.Tensor:
    size = _config_value(config, "vision_config", "image_size") or _IMAGE
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.randn(1, _config_value(config, "vision_config", "num_channels") or 3, height, width)


def _sound(config: Any) -> torch.Tensor | None:
    """Samples of a wave, where the model begins with convolutions over them."""
    return torch.randn(1, _SAMPLES) if hasattr(config, "conv_kernel") else None


def _spectrum(config: Any) -> torch.Tensor | None:
    """Bands by time, as many steps as the encoder's positions, which two strides halve."""
    bands, steps = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
    return torch.randn(1, bands, 2 * steps) if bands and steps else None


_MAKERS: Mapping[str, Callable[[Any], torch.Tensor | None]] = {
    "input_ids": _tokens,
    "decoder_input_ids": _tokens,
    "pixel_values": _pixels,
    "input_features": _spectrum,
    "input_values": _sound,
}


def _config_value(config: Any, part: str, key: str) -> Any:
    """A key of a configuration, or of its part for one kind of input."""
    return getattr(config, key, None) or getattr(getattr(config, part, None), key, None)
