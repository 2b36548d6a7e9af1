"""The two imports of simpler's scene files, where simpler (hw-native-sys) is not installed: to import this module makes
``from simpler.task_interface import ArgDirection`` and ``from simpler_setup import SceneTestCase, …`` work.

pytest's plug-in and ``optest run --source scene:FILE`` import it; a file that Python runs itself has to.
"""

from __future__ import annotations

from optest.registry import stand_in_for

_SOURCE = "optest.scenes"

stand_in_for("simpler", _SOURCE, ())
stand_in_for("simpler.task_interface", _SOURCE, ("ArgDirection",))
stand_in_for(
    "simpler_setup", _SOURCE, ("SceneTestCase", "TaskArgs", "TaskArgsBuilder", "Tensor", "Scalar", "scene_test")
)
