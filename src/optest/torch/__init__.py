"""PyTorch integration: backends, cases from torch functions, from captured models and from OpInfo samples."""
