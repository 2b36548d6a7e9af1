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
from optest.errors import OptestError, UsageError, did_you_mean, nearest
from optest.process import directory_kept
from optest.registry import load_file, load_object, run_file
from optest.torch.capture.places import TORCH_AND_OURS, shown_path
from optest.torch.models.transformers_models import transformers_model


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
            model, inputs = transformers_model(name, config)
            given = inputs()
        yield Target(stem=name, run=torch.no_grad()(lambda: model(**given)))
        return
    if config:
        raise UsageError(f"--config goes with hf:CLASS, but {what} builds its model itself")
    file, function = _parts(what)
    if file is not None and function is None:
        path = _existing(file, what)
        with _beside(path):
            yield Target(stem=path.stem, run=lambda: run_file(path))
        return
    with named_object(what) as found:
        stem = Path(file).stem if file else what.rpartition(":")[0].rpartition(".")[2]
        yield Target(stem=stem, run=_without_arguments(found, what))


@contextmanager
def named_object(what: str) -> Iterator[Any]:
    """Yield what ``FILE.py:NAME`` or ``module:NAME`` is; files beside a script can be imported meanwhile.

    Raises:
        UsageError: if there is no such file or name, or the code raises while it loads.
        Unavailable: if it needs a package that is not installed.
    """
    file, function = _parts(what)
    if file is None:
        with model_code(what):
            found = load_object(what)
        yield found
        return
    if function is None:
        raise UsageError(f"{what} is a script; name a function of it: {what}:build")
    path = _existing(file, what)
    with _beside(path):
        with model_code(what):
            module = load_file(path)
        yield _attribute(module, function, file)


@contextmanager
def _beside(script: Path) -> Iterator[None]:
    """While inside, imports and arguments are those of ``python model.py``, and not those of optest."""
    folder = str(script.parent.resolve())
    sys.path.insert(0, folder)
    arguments, sys.argv = sys.argv, [str(script)]
    try:
        yield
    finally:
        sys.argv = arguments
        if folder in sys.path:  # the script's own code may have taken it away
            sys.path.remove(folder)


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
        raise UsageError(f"{what} is {type(found).__name__}, expected a function that takes no arguments")
    name = re.sub(r".*[:.]", "", what)
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        raise UsageError(
            f"{what} is a class, whose call builds a model and does not run it\n"
            f"  write a function that does both: def captured(): return {name}(...)(torch.randn(...))"
        )
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
        raise UsageError(
            f"{what} takes {', '.join(needed)}, but capture calls it without arguments\n"
            f"  write a function that makes them: def captured(): return {name}(...)"
        )
    return function


@contextmanager
def model_code(what: str) -> Iterator[None]:
    """Run code of the user's; what it raises is said with its line, and SystemExit without a status ends it.

    Raises:
        UsageError: for whatever the code raises, and if it closes standard output.
    """
    try:
        with directory_kept():
            yield
    except (OptestError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            raise UsageError(f"{what} ended with status {error.code}; nothing was written\n  {_TRY}") from None
    except BaseException as error:  # border: a model may raise anything
        text = f"{what} raised {type(error).__name__}: {error}"
        remedy = _TRY
        if "relative import" in str(error):
            remedy = f"a script is no module of its package; name a function of it: {what}:NAME"
        elif isinstance(error, TypeError) and "missing" in str(error):
            remedy = f"write a function that makes its inputs: def captured(): return {what.rpartition(':')[2]}(...)"
        raise UsageError(f"{text}{_frames(error)}\n  nothing was written; {remedy}") from error
    if getattr(sys.stdout, "closed", False):
        raise UsageError(f"{what} closed standard output; nothing was written")


_CALLS_MODELS = Path(__file__).parents[1] / "models" / "foreign.py"
_NOT_THE_MODEL = ("<frozen ", *TORCH_AND_OURS, registry.__file__, runpy.__file__, str(_CALLS_MODELS))


def _frames(error: BaseException) -> str:
    """The last lines of the model's own code, nearest last."""
    if isinstance(error, SyntaxError):
        return f"\n  at {error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(_NOT_THE_MODEL)
    ]
    return "".join(
        f"\n  at {shown_path(each.filename)}:{each.lineno}, in {each.name}: {each.line}" for each in frames[-3:]
    )
