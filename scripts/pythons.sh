#!/usr/bin/env bash
# The tests of a slice under every Python that ShardMeter says it runs on: for each, a new environment with the versions of
# constraints.txt, the package as an installed wheel, and the laws, the contracts, the golden predictions and the commands.
# `scripts/pythons.sh 3.13` for some of them; a Python is looked for in PATH, in pyenv and by uv. One that is not found is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/pythons
wanted=("$@")
((${#wanted[@]})) || wanted=(3.11 3.12 3.13)
slice=(
  tests/dimension tests/golden
  tests/law/test_quantity.py tests/law/test_record.py tests/law/test_laws.py tests/law/test_scalar_equals_vector.py
  tests/contract/test_catalog.py tests/contract/test_scenario.py tests/contract/test_strategies.py tests/contract/test_sync.py
  tests/contract/test_reading.py tests/contract/test_logs.py tests/contract/test_torchtitan.py tests/contract/test_writing.py
  tests/surface/test_api.py tests/surface/test_json.py tests/surface/test_exit_codes.py tests/surface/test_options.py
  tests/surface/test_render.py tests/surface/test_figures.py tests/surface/test_fuzz_readers.py tests/surface/test_public_names.py
)
exact() { "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" 2>/dev/null; }

found() {
  local candidate
  for candidate in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python "$(uv python find "$1" 2>/dev/null || true)" python3; do
    if [[ -n "$candidate" ]] && exact "$candidate" "$1"; then
      echo "$candidate"
      return
    fi
  done
  echo "Python $1 is not here" >&2
  return 1
}

for version in "${wanted[@]}"; do
  python="$(found "$version")"
  venv="$folder/$version"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --constraint constraints.txt ".[plot,parquet,fit]" hypothesis pint pytest tomlkit
  echo "== $("$venv/bin/python" --version), $("$venv/bin/python" -c 'import shardmeter; print(shardmeter.__file__)')"
  "$venv/bin/python" -W error -m compileall -q -f "$venv"/lib/python*/site-packages/shardmeter
  "$venv/bin/python" -m pytest -q -p no:cacheprovider "${slice[@]}"
done
