"""One timing in a process of its own: ``python -m optest.models.bench_child FD_IN FD_OUT``, one request, one answer."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from optest.core.border import Border
from optest.errors import OptestError
from optest.models.runnable import runnable
from optest.models.running import hook_lines
from optest.process import TRACEBACK_SIGNAL, Channel
from optest.spec import Fault, Reason
from optest.timing import Subject, measure

__all__ = ["main"]


def main(arguments: Sequence[str]) -> None:
    faulthandler.enable()
    faulthandler.register(TRACEBACK_SIGNAL)
    channel = Channel(int(arguments[0]), int(arguments[1]))
    request = json.loads(channel.receive() or b"{}")
    sys.path[:] = request["import_path"]
    try:
        answer = _timed(request)
    except Fault as fault:
        answer = {"failed": f"{fault.reason.value}: {fault.message}"}
    except OptestError as error:
        answer = {"refused": str(error)}
    channel.send(json.dumps(answer).encode())


def _timed(request: Mapping[str, Any]) -> dict[str, Any]:
    model = runnable(request, batch=request["batch"], tokens=request["tokens"], threads=request["threads"])
    with Border("the backend", Reason.RAISED):  # a call ends with arrays of this process, so all of them are computed
        call = Subject(who=model.backend, call=lambda: model.program.outputs(model.feeds))
        (samples,) = measure([call], target_s=request["bench_time"])
    shape = next(iter(model.feeds.values())).shape
    return {
        "time": asdict(samples.call_time()),
        "on": model.backend,
        "program": str(model.program),
        "batch": shape[0] if shape else 1,
        "lines": [*model.notes, *hook_lines(request, model)],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
