"""Scenes: kernels that are compiled, loaded on a platform, run on some devices, and compared with golden outputs."""

from optest.scenes.declaration import ArgDirection, Scalar, SceneTestCase, TaskArgs, TaskArgsBuilder, Tensor, scene_test

__all__ = ["ArgDirection", "Scalar", "SceneTestCase", "TaskArgs", "TaskArgsBuilder", "Tensor", "scene_test"]
