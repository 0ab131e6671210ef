#!/usr/bin/env bash
# Makes .venv (or the folder in $VENV) and installs ShardMeter into it: `scripts/setup.sh run` for use, `scripts/setup.sh dev` with the tools.
# Takes uv where it is there, else venv and pip; any Python from 3.11 on (or the one in $PYTHON).
set -euo pipefail
cd "$(dirname "$0")/.."
kind="${1:-run}"
venv="${VENV:-.venv}"
recent='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python python3.14 python3.13 python3.12 python3.11; do
    if [[ -n "$candidate" ]] && "$candidate" -c "$recent" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "ShardMeter needs Python 3.11 or newer; set PYTHON=/path/to/python" >&2
  return 1
}

if ! "$venv/bin/python" -c "$recent" 2>/dev/null; then
  if [[ -e "$venv" && ! -e "$venv/pyvenv.cfg" && -n "$(ls -A "$venv")" ]]; then
    echo "$venv holds something else than an environment of Python: name another folder in VENV" >&2
    exit 1
  fi
  python="$(find_python)"
  echo "making $venv with $("$python" --version)" >&2
  rm -rf "$venv"
  if command -v uv >/dev/null; then
    uv venv --quiet --seed --python "$python" "$venv" || "$python" -m venv "$venv"
  else
    "$python" -m venv "$venv"
  fi
fi

install() {
  if command -v uv >/dev/null; then
    uv pip install --python "$venv/bin/python" "$@" >&2 && return
    echo "uv did not do it: trying pip" >&2
  fi
  PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/python" -m pip install "$@" >&2
}

echo "installing ShardMeter ($kind) and what it needs into $venv (about a minute)" >&2
if [[ "$kind" == dev ]]; then
  "$venv/bin/python" - >"$venv/dev-requirements.txt" <<'PY'
import pathlib, tomllib
print("\n".join(tomllib.loads(pathlib.Path("pyproject.toml").read_text())["dependency-groups"]["dev"]))
PY
  install --constraint constraints.txt --requirement "$venv/dev-requirements.txt" --editable .
else
  install --constraint constraints.txt --editable .
fi
