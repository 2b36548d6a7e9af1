#!/bin/bash
# Builds build/add_custom for the CPU.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p build
"${CXX:-g++}" -std=c++17 -O2 -Wall -Wextra -o build/add_custom add_custom.cpp main.cpp
