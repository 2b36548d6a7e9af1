"""Base of the dispatch modes of torch that this package defines."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_EVAL_FRAME = torch._C._dynamo.eval_frame
_CAN_SKIP = hasattr(_EVAL_FRAME, "set_code_exec_strategy")


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]  # torch leaves it without types
    """Keep torch.compile out of ``__torch_dispatch__`` without importing the compiler.

    torch's mechanism (``torch._disable_dynamo``) imports torch._dynamo and sympy at the first call, as slowly as torch
    itself, in every process, even if nothing is compiled. Here the frame evaluator of the compiler, which is part of
    torch's library, is set to run these frames, and those that they call, uncompiled.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return whether torch has to use its own mechanism, as in versions whose frame evaluator cannot skip."""
        return not _CAN_SKIP

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _CAN_SKIP:
            skip = _EVAL_FRAME._FrameAction.SKIP
            strategy = _EVAL_FRAME._FrameExecStrategy(skip, skip)
            _EVAL_FRAME.set_code_exec_strategy(cls.__torch_dispatch__.__code__, strategy)
