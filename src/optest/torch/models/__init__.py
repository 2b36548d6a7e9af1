"""Whole models in PyTorch: modules by name, weights that reveal faults, and graphs of torch and ONNX."""
