"""Base class of this package's torch dispatch modes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_EVAL_FRAME = torch._C._dynamo.eval_frame
_CAN_SKIP = hasattr(_EVAL_FRAME, "set_code_exec_strategy")


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]  # torch leaves it without types
    """Dispatch mode whose ``__torch_dispatch__`` runs uncompiled, without importing the compiler."""

    # torch's mechanism (``torch._disable_dynamo``) imports torch._dynamo and sympy at the first call, which takes as
    # long as importing torch, even if nothing is compiled. So the compiler's frame evaluator, which is part of torch's
    # library, is told to skip the method's frames and those that it calls.

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return whether torch must use its mechanism, because this version's frame evaluator cannot skip."""
        return not _CAN_SKIP

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _CAN_SKIP:
            skip = _EVAL_FRAME._FrameAction.SKIP
            strategy = _EVAL_FRAME._FrameExecStrategy(skip, skip)
            _EVAL_FRAME.set_code_exec_strategy(cls.__torch_dispatch__.__code__, strategy)
