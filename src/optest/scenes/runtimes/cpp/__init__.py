"""The runtime ``cpp``: orchestration and kernels in C++, compiled with g++, run as blocks over threads."""
