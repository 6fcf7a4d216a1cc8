#!/bin/sh
# Trains with SkyRL's supervised trainer on what was good. Killed at any moment it goes on from its
# last checkpoint in PENSTOCK_WORK.
#
#     [trainer]
#     command = "sh {here}/../trainers/skyrl.sh strategy=fsdp placement.num_gpus_per_node=8"
#
# Its arguments are options of SkyRL. TRAIN says how SkyRL is started where it is not `python3 -m`.
set -eu
data="$PENSTOCK_WORK/data"
ckpt="$PENSTOCK_WORK/ckpt"
hf="$PENSTOCK_WORK/hf"
latest="$ckpt/latest_ckpt_global_step.txt"
parent=${PENSTOCK_PARENT_URI#file://}

# The export appears whole or not at all.
test -d "$data" ||
    penstock shards export "$PENSTOCK_SHARD" --to skyrl --out "$data" --data "$PENSTOCK_DATA"

# SkyRL does not write this name whole, and cannot read it when it is empty.
test -s "$latest" || rm -f "$latest"

# An interval of exports that no run reaches: there is one, of the last step. With an interval that
# divides the steps, a trainer that was killed right before that export never makes it.
${TRAIN:-python3 -m skyrl.train.main_sft} \
    pretokenized_dataset_paths="['$data/train']" model.path="$parent" \
    ckpt_path="$ckpt" ckpt_interval=50 max_ckpts_to_keep=2 resume_from=latest \
    export_path="$hf" hf_save_interval=1000000000 "$@"

cp -R "$hf/global_step_$(cat "$latest")/policy/." "$PENSTOCK_OUTPUT"
exec python3 -c 'import os, penstock; penstock.trained(os.environ["PENSTOCK_OUTPUT"])'
