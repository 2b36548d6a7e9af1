"""Scenes: programs that are loaded on a platform and compared with a golden, and the C++ tests beside them."""
