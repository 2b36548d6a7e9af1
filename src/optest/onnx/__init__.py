"""ONNX as a guest: operators of the catalogue as models of one node, and who runs them."""
