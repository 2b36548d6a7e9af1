"""Targets of a capture: ``FILE.py``, ``FILE.py:FUNCTION``, ``module:function`` or ``hf:CLASS``."""

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
    """A callable to capture; ``stem`` is the default name of its model."""

    stem: str
    run: Callable[[], object]


_TRY = "run it without optest first"


@contextmanager
def open_target(name: str, config: Mapping[str, Any]) -> Iterator[Target]:
    """Load and yield the target; within the block, a script's folder is importable and ``sys.argv`` is the script's.

    Raises:
        UsageError: if there is no such file or function, it needs arguments, or its code raises while it loads.
        Unavailable: if it needs a package that is not installed.
    """
    if name.startswith("hf:"):
        class_name = name.removeprefix("hf:")
        with user_code_errors(name):
            model, inputs = transformers_model(class_name, config)
            arguments = inputs()
        yield Target(stem=class_name, run=torch.no_grad()(lambda: model(**arguments)))
        return
    if config:
        raise UsageError(f"--config applies only to hf:CLASS, but {name} builds its model itself")
    file, attribute = _split_name(name)
    if file is not None and attribute is None:
        path = _script_path(file, name)
        with _run_as_script(path):
            yield Target(stem=path.stem, run=lambda: run_file(path))
        return
    with load_named_object(name) as function:
        stem = Path(file).stem if file else name.rpartition(":")[0].rpartition(".")[2]
        yield Target(stem=stem, run=_require_no_arguments(function, name))


@contextmanager
def load_named_object(name: str) -> Iterator[Any]:
    """Load and yield the object that ``FILE.py:NAME`` or ``module:NAME`` names; within the block, the file's folder
    is importable.

    Raises:
        UsageError: if there is no such file or name, or the code raises while it loads.
        Unavailable: if it needs a package that is not installed.
    """
    file, attribute = _split_name(name)
    if file is None:
        with user_code_errors(name):
            value = load_object(name)
        yield value
        return
    if attribute is None:
        raise UsageError(f"{name} is a script, expected one of its functions; write {name}:FUNCTION")
    path = _script_path(file, name)
    with _run_as_script(path):
        with user_code_errors(name):
            module = load_file(path)
        yield _find_attribute(module, attribute, file)


@contextmanager
def _run_as_script(script: Path) -> Iterator[None]:
    """Put the script's folder on ``sys.path`` and the script into ``sys.argv``, as ``python model.py`` does."""
    folder = str(script.parent.resolve())
    sys.path.insert(0, folder)
    arguments, sys.argv = sys.argv, [str(script)]
    try:
        yield
    finally:
        sys.argv = arguments
        if folder in sys.path:  # the script may have removed it
            sys.path.remove(folder)


def _split_name(target: str) -> tuple[str | None, str | None]:
    """Split a target into file and function; the file is None for ``module:function``, the function for a script."""
    file, colon, function = target.rpartition(":")
    if colon and file.endswith(".py"):
        return file, function
    if target.endswith(".py") or "/" in target or Path(target).is_file():
        return target, None
    if not colon:
        raise UsageError(
            f"{target!r} cannot be captured, expected a script (model.py), a function of a script (model.py:forward) "
            "or module (package.model:forward), or hf:CLASS"
        )
    return None, function


def _script_path(file: str, target: str) -> Path:
    """Return the path of a script; raise UsageError if it is missing, a folder, or no Python file."""
    path = Path(file)
    if path.is_dir():
        raise UsageError(f"{file} is a folder, expected a script; write {file.rstrip('/')}/model.py:forward")
    if not path.is_file():
        known = sorted(path.parent.glob("*.py")) if path.parent.is_dir() else []
        near = nearest(path.name, [file.name for file in known])
        hint = f"; did you mean {path.parent / near}?" if near else ""
        raise UsageError(f"there is no file {file}{hint}\n  named by {target!r}")
    if path.suffix not in ("", ".py"):
        raise UsageError(f"{file} is no Python file, expected the script that runs the model")
    return path


def _find_attribute(module: Any, dotted: str, file: str) -> Any:
    """Return the object at a dotted path of a module; raise UsageError, which names the module's functions."""
    value = module
    for part in dotted.split("."):
        if not hasattr(value, part):
            functions = [name for name, member in vars(module).items() if inspect.isroutine(member) and name[0] != "_"]
            listed = f"; it has {', '.join(functions)}" if functions else ""
            hint = did_you_mean(part, functions, listed, text="; did you mean {}?")
            raise UsageError(f"{file} has no {dotted}{hint}")
        value = getattr(value, part)
    return value


def _require_no_arguments(function: Any, target: str) -> Callable[[], object]:
    """Return ``function`` if it can be called without arguments, and raise UsageError otherwise."""
    if not callable(function):
        raise UsageError(f"{target} is {type(function).__name__}, expected a function that takes no arguments")
    name = re.sub(r".*[:.]", "", target)
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        raise UsageError(
            f"{target} is a class: a call builds the model and does not run it\n"
            f"  write a function that does both: def captured(): return {name}(...)(torch.randn(...))"
        )
    checked: Callable[[], object] = function
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins and C functions may have no signature
        return checked
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed:
        raise UsageError(
            f"{target} takes {', '.join(needed)}, but capture calls it without arguments\n"
            f"  write a function that creates them: def captured(): return {name}(...)"
        )
    return checked


@contextmanager
def user_code_errors(target: str) -> Iterator[None]:
    """Turn exceptions of user code within the block into UsageError with the user's lines; SystemExit with status
    0 or None ends the block without an error. Restore the working directory.

    Raises:
        UsageError: if the code raises, exits with another status or closes standard output.
    """
    try:
        with directory_kept():
            yield
    except (OptestError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            raise UsageError(f"{target} ended with status {error.code}; nothing was written\n  {_TRY}") from None
    except BaseException as error:  # border: a model may raise anything
        text = f"{target} raised {type(error).__name__}: {error}"
        remedy = _TRY
        if "relative import" in str(error):
            remedy = f"a script cannot use relative imports; capture one of its functions: {target}:NAME"
        elif isinstance(error, TypeError) and "missing" in str(error):
            function = target.rpartition(":")[2]
            remedy = f"write a function that creates its inputs: def captured(): return {function}(...)"
        raise UsageError(f"{text}{_traceback_text(error)}\n  nothing was written; {remedy}") from error
    if getattr(sys.stdout, "closed", False):
        raise UsageError(f"{target} closed standard output; nothing was written")


# Frames of optest and of torch are left out of a model's traceback.
_MODEL_CALLER = Path(__file__).parents[1] / "models" / "adapters.py"
_NOT_MODEL_FILES = ("<frozen ", *TORCH_AND_OURS, registry.__file__, runpy.__file__, str(_MODEL_CALLER))


def _traceback_text(error: BaseException) -> str:
    """Return the last three traceback lines of the model's code, innermost last; a syntax error's line."""
    if isinstance(error, SyntaxError):
        return f"\n  at {error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_MODEL_FILES)
    ]
    return "".join(
        f"\n  at {shown_path(frame.filename)}:{frame.lineno}, in {frame.name}: {frame.line}" for frame in frames[-3:]
    )
