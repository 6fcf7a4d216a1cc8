#!/bin/sh
# Trains with verl's own actor, and may be killed anywhere: what is there is not done again.
#
#     [trainer]
#     command = "sh {here}/../trainers/verl.sh"
#
# Needs verl and Penstock in one environment, whose programs are in PATH. GPUS is how many there are;
# verl_offline.py says what else can be set.
set -e
: "${GPUS:=1}"
about=$(echo "$PENSTOCK_SHARD $PENSTOCK_PARENT_DIGEST $GPUS" | sha256sum | cut -c1-12)
work=$PENSTOCK_WORK/$about
mkdir -p "$work"
test -d "$work/data" ||
    penstock shards export "$PENSTOCK_SHARD" --to verl --out "$work/data" --data "$PENSTOCK_DATA"
test -d "$work/made" ||
    torchrun --standalone --nproc-per-node "$GPUS" "$(dirname "$0")/verl_offline.py" "$work"
cp "$work/made/huggingface/"* "$PENSTOCK_OUTPUT"
python3 -c 'import os, penstock; penstock.trained(os.environ["PENSTOCK_OUTPUT"])'
