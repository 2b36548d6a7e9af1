"""A call made by ``torch.compile``, and proof that it was: a fall-back to eager torch is a failure, not a pass."""

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

Answer = TypeVar("Answer")
Call = Callable[..., list[Any]]


def require_compiler(backend: str) -> None:
    """Raise ``UnknownName`` for what is no backend of ``torch.compile``."""
    _load_compiler()
    known = torch._dynamo.list_backends(exclude_tags=())
    if backend not in known:
        hint = "one of your own: OPTEST_PLUGINS=MODULE, which registers it with torch._dynamo.register_backend"
        raise UnknownName("compile backend", backend, known, hint=hint)


def compiled(call: Call, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, *, refuses: bool) -> list[Any]:
    """What the call returns for the tensors when ``target.compiler`` has compiled it.

    Raises:
        Fault: COMPILE if it cannot be compiled as one graph, FALLBACK if it returned without any, UNSUPPORTED if there
            is nothing to compile; with ``refuses`` torch's refusal is raised, out of the compiler's exceptions, too.
    """
    _, answer = _answered(
        call, tensors, target, lambda function, given: list(function(*given)), lambda answer: answer, refuses=refuses
    )
    return answer


def differentiated_by(
    call: Call,
    tensors: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    differentiate: Callable[[Call, Sequence[torch.Tensor]], Differentiated],
    outputs: Callable[[Differentiated], list[Any]],
) -> Differentiated:
    """What ``differentiate`` makes of the compiled call, whose way back is compiled too; ``outputs`` lists that.

    Raises:
        Fault: as :func:`compiled`; FALLBACK also where the compiler leaves the way back to eager torch.
    """
    _, answer = _answered(call, tensors, target, differentiate, outputs)
    is_gone_back = any(answer.has_gradient()) and not target.fallbacks
    if is_gone_back and not torch._dynamo.utils.counters["aot_autograd"]["ok"]:
        target.fell_back(
            f"{_who(target)}: it compiles no gradients, as aot_autograd around it would; eager torch went back"
        )
    return answer


def compiled_function(
    call: Call, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, use: Callable[[Call], Any]
) -> Call:
    """The compiled call, which ``use`` has made once: to call it again compiles nothing. Eager where it fell back.

    Raises:
        Fault: as :func:`compiled`.
    """
    function, _ = _answered(call, tensors, target, lambda function, _: use(function), list)
    return function


@contextmanager
def _watching(target: DeviceUnderTest) -> Iterator[None]:
    with torch._dynamo.config.patch(suppress_errors=False), watched(target.compilation), refusals_unlogged():
        yield


def _answered(
    call: Call,
    tensors: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    use: Callable[[Call, Sequence[torch.Tensor]], Answer],
    outputs: Callable[[Answer], list[Any]],
    *,
    refuses: bool = False,
) -> tuple[Call, Answer]:
    """The compiled call, or where it fell back the call itself, and what ``use`` gets from it.

    ``outputs`` lists that, where the call is made once more.
    """
    _keep_headers_in_cache()
    torch._dynamo.reset()  # or the eighth shape of one function is a recompilation too many
    torch._dynamo.utils.counters.clear()
    target.compiled = None
    with _watching(target):
        handed_back: list[Any] = []
        compiler = _watched_compiler(str(target.compiler), handed_back)
        function = torch.compile(call, backend=compiler, fullgraph=True, dynamic=False)
        try:
            answer = use(function, tensors)
        except Exception as error:
            if not _may_eager_torch_answer(error, target, refuses=refuses):
                raise
            return call, use(call, tensors)
    has_graph = bool(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    if not refuses:
        _require_compiled(call, tensors, target, has_graph=has_graph, is_handed_back=bool(handed_back))
    is_grad_enabled = torch.is_grad_enabled()

    def once_more(given: Sequence[torch.Tensor]) -> list[Any]:
        with _watching(target), torch.set_grad_enabled(is_grad_enabled):
            return outputs(use(function, given))

    target.compiled = once_more if has_graph else None
    return function, answer


def _who(target: DeviceUnderTest) -> str:
    return f"torch.compile, {target.compiler}"


def _may_eager_torch_answer(error: Exception, target: DeviceUnderTest, *, refuses: bool) -> bool:
    """Whether eager torch may answer after an error of the compiled call; False where the error is the call's own.

    Raises:
        Fault: COMPILE if it cannot be compiled, FALLBACK if nothing was, and neither is allowed.
    """
    if not target.compilation.was_begun:
        message = f"{_who(target)}: nothing was compiled, since torch.compile is switched off here"
        target.fell_back(message, **_details(error))
        return True
    refusal = refusal_within(error) if refuses else None
    if refusal is not None:
        raise refusal from None
    if not (refuses or is_of(error, ("torch._dynamo", "torch._inductor")) or target.compilation.failed_by(error)):
        return False
    if not target.may_fall_back:
        raise Fault(Reason.COMPILE, f"{_who(target)}: {_message_of(error)}", details=_details(error)) from error
    target.fallbacks.append(f"{_who(target)}: {_message_of(error)}")
    return True


def _require_compiled(
    call: Call, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, *, has_graph: bool, is_handed_back: bool
) -> None:
    """Raise where the call came back without an error, but eager torch answered.

    Raises:
        Fault: UNSUPPORTED if there is nothing to compile, FALLBACK if nothing was compiled though there is.
    """
    if not has_graph:
        with OperatorsSeen() as seen:
            call(*tensors)
        if not seen.operators:
            raise Fault(Reason.UNSUPPORTED, f"{_who(target)}: the call computes nothing that can be compiled")
        target.fell_back(f"{_who(target)}: no graph was made, so eager torch answered")
    if is_handed_back:
        target.fell_back(
            f"{_who(target)}: it handed back the graph that it got, so eager torch answered "
            "(--compile-backend eager asks for that)"
        )


def _message_of(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if len(lines) > 1 and lines[1].startswith(_EXPLAINED):
        return f"{lines[0]}: {lines[1].removeprefix(_EXPLAINED)}"
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


_EXPLAINED = "Explanation: "


def _details(error: BaseException) -> dict[str, Any]:
    """Torch's own words, without the frames of optest that it takes for the user's code."""
    return {"exception": f"{type(error).__name__}: {_FRAMES_OF_OPTEST.sub('', str(error))}"[:4000]}


_FRAMES_OF_OPTEST = re.compile(r"\n+from user code:\n.*?(?=\n\n\S|\Z)", re.DOTALL)


# Where inductor keeps what it makes: in the run's folder alone, nothing of it beside the user's other files.

_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@lru_cache(maxsize=1)
def _load_compiler() -> None:
    """Import torch's compiler, which makes a folder for its cache as it is loaded: a worker has been told where.

    Whoever only asks for the names of compilers has no use for one.
    """
    if _CACHE in environment():
        import torch._dynamo
    else:
        with TemporaryDirectory(prefix="optest-") as folder, variables_set({_CACHE: folder}):
            import torch._dynamo  # noqa: F401


def _keep_headers_in_cache() -> None:
    """Compiled headers, too, belong to the cache that is stated now; inductor puts them into the temporary folder."""
    stated = environment().get(_CACHE)
    if stated is None:
        return
    from torch._inductor import codecache

    for name, folders in (("_HEADER_DIR", ()), ("_HEADER_LOCK_DIR", ("locks",))):
        if hasattr(codecache, name):
            setattr(codecache, name, os.path.join(stated, "precompiled_headers", *folders))


# Compilers that hand back what they got: the call is made by eager torch then, and nothing of it was compiled.


def _watched_compiler(name: str, handed_back: list[Any]) -> str | Callable[..., Any]:
    """What ``torch.compile`` takes; graphs that the compiler hands back unchanged are added to ``handed_back``.

    Torch's own compilers go by their names: who asks for ``eager_debug`` knows.
    """
    function: Any = torch._dynamo.backends.registry.lookup_backend(name)
    if str(getattr(function, "__module__", "torch")).partition(".")[0] == "torch":
        return name

    @wraps(function)
    def watched(graph: Any, *rest: Any, **options: Any) -> Any:
        before = _calls_of(graph)
        made = function(graph, *rest, **options)
        owner = getattr(made, "__self__", made)
        is_graph = owner is graph or (type(owner) is torch.fx.Interpreter and owner.module is graph)
        if is_graph and _calls_of(graph) == before:
            handed_back.append(graph)
        return made

    watched.__name__ = name  # which torch tells when the compiler fails
    return watched


def _calls_of(graph: Any) -> list[tuple[Any, ...]]:
    """Passes over a graph change it in place, and hand it back rightly."""
    return [(node.op, node.target, str(node.args), str(node.kwargs)) for node in graph.graph.nodes]
