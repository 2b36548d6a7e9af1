"""simpler's scene files (hw-native-sys) with the scenes of optest: ``from simpler_setup import SceneTestCase, …`` and
``from simpler.task_interface import ArgDirection``, whether simpler is installed or not.

pytest's plug-in and ``optest run --source scene:FILE`` import it; a file that Python runs itself has to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from optest import scenes
from optest.registry import change_after_import, stand_in_for

stand_in_for("simpler", scenes.__name__, ())
stand_in_for("simpler.task_interface", scenes.__name__, ("ArgDirection",))
stand_in_for("simpler_setup", scenes.__name__, scenes.__all__)


def _take_over(package: ModuleType) -> None:
    """Replace the classes of simpler's own runner in an installed ``simpler_setup``, whose helpers then accept them.

    Scenes stay subclasses of simpler's base, too: tests by hand call its ``compile_chip_callable``.
    """
    module = sys.modules.get("simpler_setup.scene_test")
    if module is None or issubclass(theirs := module.SceneTestCase, scenes.SceneTestCase):
        return
    prepare = module.scene_test

    def scene_test(level: int, runtime: str, **more: Any) -> Callable[[Any], Any]:
        declare, declare_there = scenes.scene_test(level, runtime, **more), prepare(level, runtime)
        return lambda scene: declare(declare_there(scene))

    # None: pytest would run all cases in the one test of simpler's
    base = type("SceneTestCase", (scenes.SceneTestCase, theirs), {"test_run": None})
    names = {name: getattr(scenes, name) for name in ("Scalar", "TaskArgsBuilder", "Tensor")}
    for each in (module, package):
        vars(each).update(names, SceneTestCase=base, scene_test=scene_test)


change_after_import("simpler_setup", _take_over)  # a finder of pytest may come first for its modules
