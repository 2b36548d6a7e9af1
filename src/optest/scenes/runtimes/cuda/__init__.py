"""The runtime ``cuda``: host code and kernels in CUDA C++, compiled with nvcc."""
