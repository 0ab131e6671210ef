#!/usr/bin/env bash
# What tests/lab/test_real.py needs beside the tools: PyTorch in .venv (or the folder in $VENV). Installs it where it can, says so where it
# cannot; the tests then skip themselves. TORCH=no leaves it out (a build for GPUs has several gigabytes).
set -uo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv}"
[[ "${TORCH:-2.13.0}" == no ]] && exit 0
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  echo "installing PyTorch into $venv" >&2
  PIP_DISABLE_PIP_VERSION_CHECK=1 timeout "${TORCH_SETUP_S:-240}" "$venv/bin/python" -m pip install --quiet "torch==${TORCH:-2.13.0}" >/dev/null 2>&1 ||
    echo "no PyTorch, and it could not be installed: the lab's real runs are skipped" >&2
fi
exit 0
