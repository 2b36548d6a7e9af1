"""Whole models in PyTorch: their modules by name, weights that show faults, and their graphs, of torch and of ONNX."""
