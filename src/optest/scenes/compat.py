"""The two imports of simpler's scene files, where simpler (hw-native-sys) is not installed: to import this module makes
``from simpler.task_interface import ArgDirection`` and ``from simpler_setup import SceneTestCase, …`` work.

pytest's plug-in and ``optest run --source scene:FILE`` import it; a file that Python runs itself has to.
"""

from __future__ import annotations

from optest import scenes
from optest.registry import stand_in_for

stand_in_for("simpler", scenes.__name__, ())
stand_in_for("simpler.task_interface", scenes.__name__, ("ArgDirection",))
stand_in_for("simpler_setup", scenes.__name__, scenes.__all__)
