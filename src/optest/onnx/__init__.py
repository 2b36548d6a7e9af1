"""Backends that run ONNX models, and the conversion of operators to models of one node."""
