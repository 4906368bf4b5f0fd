#!/bin/sh
# Three small specialists are trained here and evolved into one model that is better than each.
# Everything goes into ./demo; run again, it starts over.
set -eu
forge="${VENV:-.venv}/bin/forge"
here="${DEMO:-demo}"
generations="${GENS:-8}"
FORGE_HOME="$here/home"
export FORGE_HOME

if [ ! -f "$here/models/cognate.json" ]; then
    echo "== 1/2 training a base and three specialists (some minutes)"
    "$forge" cognate --out "$here/models"
else
    echo "== 1/2 models are there already: $here/models"
fi
echo
echo "== 2/2 evolving merges of them, $generations generations"
"$forge" evo \
    --base-models "$here/models/code,$here/models/math,$here/models/data" \
    --base-model "$here/models/base" \
    --data "$here/models/items" \
    --config examples/demo.toml \
    --gens "$generations" \
    --output-dir "$here/champion"
