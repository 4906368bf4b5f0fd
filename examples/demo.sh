#!/bin/sh
# Three small specialists are trained here and evolved into one model that is better than each.
# Everything goes into ./demo; run again, it searches from the start with the models that are there.
# Another seed trains its own models, in a folder of its own: SEED=1 DEMO=demo-1 make demo.
set -eu
forge="${VENV:-.venv}/bin/forge"
here="${DEMO:-demo}"
generations="${GENS:-8}"
seed="${SEED:-0}"
FORGE_HOME="$here/home"
export FORGE_HOME

if [ ! -f "$here/models/cognate.json" ]; then
    echo "== 1/2 training a base and three specialists (some minutes)"
    # Muon would train better models, of which merges gain less: docs/benchmarks.md, "The demo's verdict".
    "$forge" cognate --out "$here/models" --seed "$seed" --optimiser adamw
elif ! grep -Eq "\"seed\": *$seed,?\$" "$here/models/cognate.json"; then
    echo "The models in $here/models were trained with another seed than $seed." >&2
    echo "Choose another folder: SEED=$seed DEMO=demo-$seed make demo. Or remove $here first." >&2
    exit 2
else
    echo "== 1/2 models are there already: $here/models"
fi
# The models are taken by the run that trained them and their role: the lineage goes on through it.
run=$(sed -n 's/^ *"run": "\(.*\)",*$/\1/p' "$here/models/cognate.json")
echo
echo "== 2/2 evolving merges of them, $generations generations"
# Models this small are scored faster by two processes with half of the cores each.
[ "$(nproc)" -ge 2 ] && FORGE_PROCESSES="${FORGE_PROCESSES:-2}" && export FORGE_PROCESSES
"$forge" evo \
    --base-models "$run:code,$run:math,$run:data" \
    --base-model "$run:base" \
    --data "$here/models/items" \
    --config examples/demo.toml \
    --gens "$generations" \
    --seed "$seed" \
    --output-dir "$here/champion"
echo
echo "All eight phases, in some 40 minutes: $forge pipeline run examples/speedrun.toml --output-dir speedrun"
