"""Replacement of simpler (hw-native-sys): its scene files run unchanged, whether simpler is installed or not.

``from simpler_setup import SceneTestCase, …`` and ``from simpler.task_interface import ArgDirection`` get the classes
of optest. The pytest plug-in and ``optest run --source scene:FILE`` import this module; a script has to do so itself.
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


def _replace_scene_classes(package: ModuleType) -> None:
    """Replace the scene classes in an installed ``simpler_setup``, so that its helpers accept those of optest.

    Scenes stay subclasses of simpler's base, too: tests that are no scenes call its ``compile_chip_callable``.
    """
    module = sys.modules.get("simpler_setup.scene_test")
    if module is None or issubclass(theirs := module.SceneTestCase, scenes.SceneTestCase):
        return
    prepare = module.scene_test

    def scene_test(level: int, runtime: str, **more: Any) -> Callable[[Any], Any]:
        declare, declare_to_simpler = scenes.scene_test(level, runtime, **more), prepare(level, runtime)
        return lambda scene: declare(declare_to_simpler(scene))

    # None: pytest would run all cases in the one test that simpler's base has.
    base = type("SceneTestCase", (scenes.SceneTestCase, theirs), {"test_run": None})
    names = {name: getattr(scenes, name) for name in ("Scalar", "TaskArgsBuilder", "Tensor")}
    for namespace in (module, package):
        vars(namespace).update(names, SceneTestCase=base, scene_test=scene_test)


change_after_import("simpler_setup", _replace_scene_classes)  # pytest's assertion rewriting may import it first
