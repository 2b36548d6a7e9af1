"""What runs of scenes leave behind: timelines and dumped tensors, a folder for each process, flat in the end."""

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
    """Return the folder of a case, whose files may have the names of those that another case writes in this second."""
    worker = f"l2_{scene._scene_runtime}_dev{device_ids[0]}" if scene._scene_level == 2 else "l3"
    return OUTPUTS / f"{_SUBFOLDER}{worker}_{re.sub(r'[^0-9A-Za-z]+', '_', case.id)}"


class Recorder(Recording):
    """The timeline and the tensors of one run of a case, written when it is over."""

    def __init__(self, case: TestCase, folder: Path, *, profiles: bool, dumps: bool) -> None:
        self.profiles, self.dumps = profiles, dumps
        self._case, self._folder = case, folder
        self._spans: list[Span] = []
        self._tensors: dict[str, Any] = {}

    def span(self, span: Span) -> None:
        self._spans.append(span)

    def tensor(self, task: str, when: str, place: int, array: Any) -> None:
        self._tensors[f"{task}/{when}/{place}"] = array

    def make_folder(self) -> Path:
        """The folder of this process, where the runtime itself may write profiles, too."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Fault(Reason.BAD_CASE, f"{self._folder} cannot be made: {error.strerror}") from None
        return self._folder.absolute()

    def write(self) -> None:
        """Write ``perf_swimlane_….json``, which Chrome and Perfetto show, and ``tensor_dump_….safetensors``."""
        if not (self._spans or self._tensors):
            return
        scene, case = self._case.descriptor.name.partition(".")[2], self._case.attributes["case"]
        stamp, folder = f"{datetime.now():%Y%m%d_%H%M%S}_{scene}_{case}", self.make_folder()
        if self._spans:
            path = _unused(folder / f"perf_swimlane_{stamp}.json")
            spans = [
                event(one.name, process=one.device, row=one.row, began_s=one.began_s, took_s=one.ended_s - one.began_s)
                for one in self._spans
            ]
            write_atomically(path, trace_of(spans).encode())
        if self._tensors:
            path = _unused(folder / f"tensor_dump_{stamp}.safetensors")
            save_tensors(self._tensors, path, self._case.id)
            index = {name: {"dtype": str(each.dtype), "shape": each.shape} for name, each in self._tensors.items()}
            write_atomically(path.with_suffix(".json"), json.dumps(index, indent=1).encode())


def _unused(path: Path, tag: str = "") -> Path:
    """The path, or one with ``tag`` and a number behind its stem that is not there yet."""
    numbered = (f"{tag}{number if number > 1 or not tag else ''}" for number in itertools.count(1))
    others = (path.with_stem(f"{path.stem}__{each}") for each in numbered)
    return next(each for each in itertools.chain([path], others) if not each.exists())


def collect_outputs(run_folder: Path) -> None:
    """Bring what the processes of a run wrote into ``outputs``, and write an index of it to the run's folder."""
    if moved := flatten_perf_subdirs():
        names = json.dumps([str(each.absolute()) for each in moved], indent=1)
        write_atomically(run_folder / "outputs.json", names.encode())


def flatten_perf_subdirs(outputs: Path = OUTPUTS) -> list[Path]:
    """Move the files of every ``perf_…`` folder up into ``outputs`` and return where they are; none is overwritten.

    The first writer keeps the name, the others get the tag of their folder: ``perf_swimlane_…__gw1.json``.
    """
    moved: list[Path] = []
    for folder in sorted(each for each in outputs.glob(f"{_SUBFOLDER}*") if each.is_dir()):
        tag = folder.name.removeprefix(_SUBFOLDER)
        files = sorted(each for each in folder.iterdir() if each.is_file())
        moved += [file.rename(_unused(outputs / file.name, tag)) for file in files]
        if not any(folder.iterdir()):
            folder.rmdir()
    return moved
