"""Where inductor keeps what it makes: in the run's folder alone, nothing of it beside the user's other files."""

from __future__ import annotations

import os
from functools import lru_cache
from tempfile import TemporaryDirectory

from optest.settings import environment, variables_set

__all__ = ["keep_headers_in_cache", "load_compiler"]

_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@lru_cache(maxsize=1)
def load_compiler() -> None:
    """Import torch's compiler, which makes a folder for its cache as it is loaded: a worker has been told where.

    Whoever only asks for the names of compilers has no use for one.
    """
    if _CACHE in environment():
        import torch._dynamo
    else:
        with TemporaryDirectory(prefix="optest-") as folder, variables_set({_CACHE: folder}):
            import torch._dynamo  # noqa: F401


def keep_headers_in_cache() -> None:
    """Compiled headers, too, belong to the cache that is stated now; inductor puts them into the temporary folder."""
    stated = environment().get(_CACHE)
    if stated is None:
        return
    from torch._inductor import codecache

    for name, folders in (("_HEADER_DIR", ()), ("_HEADER_LOCK_DIR", ("locks",))):
        if hasattr(codecache, name):
            setattr(codecache, name, os.path.join(stated, "precompiled_headers", *folders))
