"""Scenes: kernels that are compiled, loaded on a platform, run on one or several devices, and held to a golden."""

from optest.scenes.declaration import (
    ArgDirection,
    Scalar,
    SceneTestCase,
    TaskArgs,
    TaskArgsBuilder,
    Tensor,
    scene_test,
)

__all__ = ["ArgDirection", "Scalar", "SceneTestCase", "TaskArgs", "TaskArgsBuilder", "Tensor", "scene_test"]
