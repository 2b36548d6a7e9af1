"""What Python imports at its start: `python test_x.py` of simpler then runs the scenes of that file by optest, where
OPTEST_PLUGINS names the runtime beside this file."""

import os

if "simpler_runtime" in os.environ.get("OPTEST_PLUGINS", ""):
    import optest.scenes.compat  # noqa: F401
