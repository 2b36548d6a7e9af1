#!/bin/bash
# run.sh -r cpu|npu -v CHIP: runs the operator on the files in input/.
set -euo pipefail
cd "$(dirname "$0")"
mode=cpu
chip=
while getopts "r:v:" option; do
    case "$option" in
        r) mode=$OPTARG ;;
        v) chip=$OPTARG ;;
        *) exit 2 ;;
    esac
done
if [[ "$mode" != cpu ]]; then
    echo "run.sh: mode '$mode' needs a $chip and its toolkit; this example has the mode cpu alone" >&2
    exit 3
fi
if [[ "${chip,,}" != ascend* ]]; then
    echo "run.sh: chip is '$chip', but should begin with Ascend" >&2
    exit 2
fi
exec ./build/add_custom
