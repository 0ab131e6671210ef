#!/usr/bin/env bash
# What tests/browser needs beside the tools: chromium, and playwright in .venv (or the folder in $VENV). Installs them where it may (root,
# Debian's apt-get), says what is missing where it may not; the tests then skip themselves.
set -uo pipefail
cd "$(dirname "$0")/.."
patience="${BROWSER_SETUP_S:-240}"
venv="${VENV:-.venv}"

has_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

if ! has_chromium >/dev/null; then
  if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
    echo "installing chromium" >&2
    export DEBIAN_FRONTEND=noninteractive
    timeout "$patience" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core' >/dev/null 2>&1
  fi
  has_chromium >/dev/null || echo "no chromium, and it could not be installed: the browser tests are skipped" >&2
fi

if ! "$venv/bin/python" -c 'import playwright' 2>/dev/null; then
  echo "installing playwright into $venv" >&2
  PIP_DISABLE_PIP_VERSION_CHECK=1 timeout "$patience" "$venv/bin/python" -m pip install --quiet --constraint constraints.txt playwright >/dev/null 2>&1 ||
    echo "no playwright, and it could not be installed: the browser tests are skipped" >&2
fi
exit 0
