"""The memory page in which a worker writes its phase."""

from __future__ import annotations

import multiprocessing
import time
from itertools import cycle
from pathlib import Path

from optest.core.phases import Phase, PhasePage

_LOOKS = 300_000


def _write_for_ever(path: Path) -> None:
    with PhasePage(path) as page:
        for phase in cycle((Phase.RUN, Phase.COMPARE)):
            page.write(phase)


def test_parent_reads_written_phase(tmp_path: Path) -> None:
    with PhasePage(tmp_path / "page", create=True) as ours, PhasePage(tmp_path / "page") as theirs:
        assert ours.read()[0] is Phase.IDLE
        began = time.monotonic()
        theirs.write(Phase.BENCHMARK)
        phase, since = ours.read()
        assert phase is Phase.BENCHMARK
        assert began - 1e-6 <= since <= time.monotonic() + 1e-6


def test_earlier_worker_writes_to_its_own_page(tmp_path: Path) -> None:
    # its run was killed and is resumed before the guard has ended it
    with PhasePage(tmp_path / "page", create=True) as before, PhasePage(tmp_path / "page", create=True) as now:
        before.write(Phase.BENCHMARK)
        assert now.read()[0] is Phase.IDLE


def test_page_can_be_closed_twice(tmp_path: Path) -> None:
    page = PhasePage(tmp_path / "page", create=True)
    page.close()
    page.close()


def test_reader_sees_whole_writes(tmp_path: Path) -> None:
    # a worker was once killed as hung: its parent read the new phase with time 0
    path = tmp_path / "page"
    with PhasePage(path, create=True) as page:
        page.write(Phase.COMPARE)
        began = time.monotonic()
        writer = multiprocessing.get_context("spawn").Process(target=_write_for_ever, args=(path,), daemon=True)
        writer.start()
        try:
            while page.read()[1] < began + 1e-3:  # until the writer is at work
                assert writer.is_alive()
            seen = {(phase, since > began) for phase, since in (page.read() for _ in range(_LOOKS))}
        finally:
            writer.kill()
            writer.join()
    assert seen == {(Phase.RUN, True), (Phase.COMPARE, True)}
