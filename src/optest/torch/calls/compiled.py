"""Execute a call with ``torch.compile``; a fall-back to eager torch is a failure, not a pass."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from optest.errors import UnknownName
from optest.settings import environment, variables_set
from optest.spec import Fault, Reason
from optest.torch.calls.call import OperatorsSeen
from optest.torch.calls.device_under_test import DeviceUnderTest, watched
from optest.torch.calls.gradients import Differentiated
from optest.torch.calls.refusals import is_of, refusal_within, refusals_unlogged

Result = TypeVar("Result")
Call = Callable[..., list[Any]]


def require_compiler(backend: str) -> None:
    """Raise UnknownName unless ``backend`` is a backend of ``torch.compile``."""
    _load_compiler()
    known = torch._dynamo.list_backends(exclude_tags=())
    if backend not in known:
        hint = "for your own backend, set OPTEST_PLUGINS=MODULE; MODULE calls torch._dynamo.register_backend"
        raise UnknownName("compile backend", backend, known, hint=hint)


def run_compiled(call: Call, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, *, refuses: bool) -> list[Any]:
    """Compile the call with ``target.compiler`` and return its results for the tensors.

    Raises:
        Fault: COMPILE if it cannot be compiled as one graph, FALLBACK if it returned without any, UNSUPPORTED if there
            is nothing to compile. With ``refuses``, torch's refusal is raised instead, without the compiler's wrapper.
    """
    _, results = _compile_and_use(
        call, tensors, target, lambda function, args: list(function(*args)), lambda results: results, refuses=refuses
    )
    return results


def differentiated_by(
    call: Call,
    tensors: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    differentiate: Callable[[Call, Sequence[torch.Tensor]], Differentiated],
    outputs: Callable[[Differentiated], list[Any]],
) -> Differentiated:
    """Compile the call and return ``differentiate(compiled_call, tensors)``; ``outputs`` lists the result's values.

    Raises:
        Fault: as :func:`compiled`; FALLBACK also if the compiler leaves the backward pass to eager torch.
    """
    _, derivative = _compile_and_use(call, tensors, target, differentiate, outputs)
    has_backward = any(derivative.has_gradient()) and not target.fallbacks
    if has_backward and not torch._dynamo.utils.counters["aot_autograd"]["ok"]:
        target.fell_back(
            f"{_compiler_name(target)}: eager torch computed the gradients; to compile them, wrap the backend in "
            "aot_autograd"
        )
    return derivative


def compiled_function(
    call: Call, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, use: Callable[[Call], Any]
) -> Call:
    """Compile the call by running ``use`` once and return it, or the eager call after a fall-back.

    Raises:
        Fault: as :func:`compiled`.
    """
    function, _ = _compile_and_use(call, tensors, target, lambda function, _: use(function), list)
    return function


@contextmanager
def _compiler_settings(target: DeviceUnderTest) -> Iterator[None]:
    with torch._dynamo.config.patch(suppress_errors=False), watched(target.compilation), refusals_unlogged():
        yield


def _compile_and_use(
    call: Call,
    tensors: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    use: Callable[[Call, Sequence[torch.Tensor]], Result],
    outputs: Callable[[Result], list[Any]],
    *,
    refuses: bool = False,
) -> tuple[Call, Result]:
    """Compile the call; return it, or the call itself after a fall-back, and the result of ``use``.

    Set ``target.compiled`` to a function that repeats ``use`` and lists the result with ``outputs``.
    """
    _keep_headers_in_cache()
    torch._dynamo.reset()  # dynamo gives up after eight recompilations of one function
    torch._dynamo.utils.counters.clear()
    target.compiled = None
    with _compiler_settings(target):
        handed_back: list[Any] = []
        compiler = _watched_compiler(str(target.compiler), handed_back)
        function = torch.compile(call, backend=compiler, fullgraph=True, dynamic=False)
        try:
            result = use(function, tensors)
        except Exception as error:
            if not _allows_eager(error, target, refuses=refuses):
                raise
            return call, use(call, tensors)
    has_graph = bool(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    if not refuses:
        _require_compiled(call, tensors, target, has_graph=has_graph, is_handed_back=bool(handed_back))
    is_grad_enabled = torch.is_grad_enabled()

    def repeat(args: Sequence[torch.Tensor]) -> list[Any]:
        with _compiler_settings(target), torch.set_grad_enabled(is_grad_enabled):
            return outputs(use(function, args))

    target.compiled = repeat if has_graph else None
    return function, result


def _compiler_name(target: DeviceUnderTest) -> str:
    return f"torch.compile, {target.compiler}"


def _allows_eager(error: Exception, target: DeviceUnderTest, *, refuses: bool) -> bool:
    """Return whether eager torch may execute the call after this error; False if the error is the call's, not the
    compiler's. Record the fall-back in ``target``.

    Raises:
        Fault: COMPILE if compilation failed, FALLBACK if it never began, unless ``target`` may fall back.
        Exception: torch's refusal, with ``refuses``.
    """
    if not target.compilation.was_begun:
        message = f"{_compiler_name(target)}: nothing was compiled, since torch.compile is disabled in this process"
        target.fell_back(message, **_error_details(error))
        return True
    refusal = refusal_within(error) if refuses else None
    if refusal is not None:
        raise refusal from None
    if not (refuses or is_of(error, ("torch._dynamo", "torch._inductor")) or target.compilation.failed_by(error)):
        return False
    message = f"{_compiler_name(target)}: {_error_message(error)}"
    if not target.may_fall_back:
        raise Fault(Reason.COMPILE, message, details=_error_details(error)) from error
    target.fallbacks.append(message)
    return True


def _require_compiled(
    call: Call, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, *, has_graph: bool, is_handed_back: bool
) -> None:
    """Check that a call without an error was executed by a compiled graph.

    Raises:
        Fault: UNSUPPORTED if there is nothing to compile, FALLBACK if eager torch executed the call.
    """
    if not has_graph:
        with OperatorsSeen() as seen:
            call(*tensors)
        if not seen.operators:
            raise Fault(Reason.UNSUPPORTED, f"{_compiler_name(target)}: the call computes nothing that can be compiled")
        target.fell_back(f"{_compiler_name(target)}: no graph was created, so eager torch executed the call")
    if is_handed_back:
        target.fell_back(
            f"{_compiler_name(target)}: it returned its graph unchanged, so eager torch executed the call "
            "(for that, use --compile-backend eager)"
        )


_EXPLAINED = "Explanation: "


def _error_message(error: BaseException) -> str:
    """Return the first line of an error, with dynamo's explanation or the line after a colon; else its class name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if len(lines) > 1 and lines[1].startswith(_EXPLAINED):
        return f"{lines[0]}: {lines[1].removeprefix(_EXPLAINED)}"
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


# dynamo takes optest's frames for user code.
_FRAMES_OF_OPTEST = re.compile(r"\n+from user code:\n.*?(?=\n\n\S|\Z)", re.DOTALL)


def _error_details(error: BaseException) -> dict[str, Any]:
    return {"exception": f"{type(error).__name__}: {_FRAMES_OF_OPTEST.sub('', str(error))}"[:4000]}


_CACHE = "TORCHINDUCTOR_CACHE_DIR"


# The import creates inductor's cache folder. Workers have the variable set; a process that only lists the compilers
# needs no cache.
@lru_cache(maxsize=1)
def _load_compiler() -> None:
    if _CACHE in environment():
        import torch._dynamo
    else:
        with TemporaryDirectory(prefix="optest-") as folder, variables_set({_CACHE: folder}):
            import torch._dynamo  # noqa: F401


def _keep_headers_in_cache() -> None:
    """Set inductor's folders for compiled headers to the cache folder, instead of the system's temporary folder."""
    cache = environment().get(_CACHE)
    if cache is None:
        return
    from torch._inductor import codecache

    for name, folders in (("_HEADER_DIR", ()), ("_HEADER_LOCK_DIR", ("locks",))):
        if hasattr(codecache, name):
            setattr(codecache, name, os.path.join(cache, "precompiled_headers", *folders))


def _watched_compiler(name: str, handed_back: list[Any]) -> str | Callable[..., Any]:
    """Return the ``backend`` argument for ``torch.compile``: a wrapper of a user-defined compiler that appends each
    graph which it returns unchanged to ``handed_back``; the name of a compiler of torch.
    """
    function: Any = torch._dynamo.backends.registry.lookup_backend(name)
    if str(getattr(function, "__module__", "torch")).partition(".")[0] == "torch":
        return name

    @wraps(function)
    def watched(graph: Any, *rest: Any, **options: Any) -> Any:
        before = _calls_of(graph)
        executable = function(graph, *rest, **options)
        owner = getattr(executable, "__self__", executable)
        is_graph = owner is graph or (type(owner) is torch.fx.Interpreter and owner.module is graph)
        if is_graph and _calls_of(graph) == before:
            handed_back.append(graph)
        return executable

    watched.__name__ = name  # torch reports it when the compiler fails
    return watched


# A pass may change its graph in place and return it: that graph is compiled.
def _calls_of(graph: Any) -> list[tuple[Any, ...]]:
    return [(node.op, node.target, str(node.args), str(node.kwargs)) for node in graph.graph.nodes]
