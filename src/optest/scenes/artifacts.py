"""Files of scene runs: timelines and dumped tensors, in a folder for each process until the run ends."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from optest.generators.files import save_tensors
from optest.reporting.timeline import event, trace_of
from optest.scenes.declaration import SceneTestCase
from optest.scenes.runtimes import Recording, Span
from optest.spec import Fault, Reason, TestCase
from optest.store import write_atomically

OUTPUTS = Path("outputs")
_SUBFOLDER = "perf_"


def folder_of(scene: SceneTestCase, case: TestCase, device_ids: Sequence[int]) -> Path:
    """Return the folder for a case's files: cases may write files of the same name in the same second."""
    worker = f"l2_{scene._scene_runtime}_dev{device_ids[0]}" if scene._scene_level == 2 else "l3"
    return OUTPUTS / f"{_SUBFOLDER}{worker}_{re.sub(r'[^0-9A-Za-z]+', '_', case.id)}"


class Recorder(Recording):
    """Records the timeline and the tensors of one run of a case, and writes them after it."""

    def __init__(self, case: TestCase, folder: Path, *, profiles: bool, dumps: bool) -> None:
        self.profiles, self.dumps = profiles, dumps
        self._case, self._folder = case, folder
        self._spans: list[Span] = []
        self._tensors: dict[str, Any] = {}

    def span(self, span: Span) -> None:
        self._spans.append(span)

    def tensor(self, task: str, when: str, index: int, array: Any) -> None:
        self._tensors[f"{task}/{when}/{index}"] = array

    def make_folder(self) -> Path:
        """Create the folder of the case, also for profiles of the runtime; return its absolute path."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Fault(Reason.BAD_CASE, f"{self._folder} cannot be created: {error.strerror}") from None
        return self._folder.absolute()

    def write(self) -> None:
        """Write the timeline (for Chrome and Perfetto) and the tensors, if any, under names with the time."""
        if not (self._spans or self._tensors):
            return
        scene, case = self._case.descriptor.name.partition(".")[2], self._case.attributes["case"]
        stamp, folder = f"{datetime.now():%Y%m%d_%H%M%S}_{scene}_{case}", self.make_folder()
        if self._spans:
            path = _unused_path(folder / f"perf_swimlane_{stamp}.json")
            spans = [
                event(x.name, process=x.device, row=x.row, began_s=x.began_s, took_s=x.ended_s - x.began_s)
                for x in self._spans
            ]
            write_atomically(path, trace_of(spans).encode())
        if self._tensors:
            path = _unused_path(folder / f"tensor_dump_{stamp}.safetensors")
            save_tensors(self._tensors, path, self._case.id)
            index = {name: {"dtype": str(x.dtype), "shape": x.shape} for name, x in self._tensors.items()}
            write_atomically(path.with_suffix(".json"), json.dumps(index, indent=1).encode())


def _unused_path(path: Path, tag: str = "") -> Path:
    """Return ``path`` if no file has it, else a free one with ``tag`` and a number after the stem."""
    suffixes = (f"{tag}{number if number > 1 or not tag else ''}" for number in itertools.count(1))
    others = (path.with_stem(f"{path.stem}__{suffix}") for suffix in suffixes)
    return next(x for x in itertools.chain([path], others) if not x.exists())


def collect_outputs(run_folder: Path) -> None:
    """Move the files of all processes of a run into ``outputs``; list them in ``outputs.json`` of the run's folder."""
    if moved := flatten_perf_subdirs():
        names = json.dumps([str(path.absolute()) for path in moved], indent=1)
        write_atomically(run_folder / "outputs.json", names.encode())


def flatten_perf_subdirs(outputs: Path = OUTPUTS) -> list[Path]:
    """Move the files of every ``perf_…`` folder up into ``outputs`` without overwriting; return their new paths.

    The first writer keeps the name, the others get the tag of their folder: ``perf_swimlane_…__gw1.json``.
    """
    moved: list[Path] = []
    for folder in sorted(path for path in outputs.glob(f"{_SUBFOLDER}*") if path.is_dir()):
        tag = folder.name.removeprefix(_SUBFOLDER)
        files = sorted(path for path in folder.iterdir() if path.is_file())
        moved += [file.rename(_unused_path(outputs / file.name, tag)) for file in files]
        if not any(folder.iterdir()):
            folder.rmdir()
    return moved
