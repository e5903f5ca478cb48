#!/bin/sh
# Compile the CUDA C sources of this folder to the PTX kept beside them. Needs nvcc.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-/usr/local/cuda/bin/nvcc}
for source in ${*:-*.cu}; do
    arch=$(sed -n 's/.*nvcc: -arch=\(sm_[0-9a-z]*\).*/\1/p' "$source" | head -1)
    "$nvcc" -arch="${arch:-sm_90}" -O3 -ptx "$source" -o "${source%.cu}.ptx"
done
