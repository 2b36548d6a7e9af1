#!/bin/bash
# Fails the way an operator launch fails: a word on standard error and an exit status of its own.
echo "[ERROR] aclrtLaunchKernel failed on $1: simulated failure" >&2
exit 42
