#!/bin/sh
# Trains with prime-rl's trainer alone, on samples with their log-probabilities and advantages: there
# is no orchestrator and no inference. Killed at any moment it goes on from its last checkpoint in
# PENSTOCK_WORK.
#
#     [trainer]
#     command = "RANKS=8 PRIME_RL=/opt/prime-rl sh {here}/../trainers/prime_rl.sh"
#
# RANKS is the number of GPUs, PRIME_RL where prime-rl lies, and prime_rl.toml are its settings. What
# else its trainer is to know can be given as arguments.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data="$PENSTOCK_WORK/data"
run="$PENSTOCK_WORK/run"
parent=${PENSTOCK_PARENT_URI#file://}
ranks=${RANKS:-1}

# The export appears whole or not at all.
test -d "$data" ||
    penstock shards export "$PENSTOCK_SHARD" --to prime-rl --out "$data" --data "$PENSTOCK_DATA"
python3 "$here/prime_rl_ranks.py" "$data" "$run" "$ranks"
steps=$(ls "$run/batches" | wc -l | tr -d ' ')
last="$run/broadcasts/step_$steps"

# Its trainer offers weights to an inference after each step, and waits until they are taken.
take() {
    while sleep "${LOOK_SECONDS:-1}"; do
        for offer in "$run"/broadcasts/step_*/.sender_ready; do
            taken="${offer%.sender_ready}.receiver_ready"
            if test -e "$offer" && ! test -e "$taken"; then touch "$taken" || true; fi
        done
    done
}

if ! test -e "$last/.finished"; then
    rm -rf "$run/broadcasts"
    # A checkpoint that was being written has no .metadata yet.
    resume=$(ls -d "$run"/checkpoints/step_*/trainer/.metadata 2> /dev/null |
        sed 's:.*/step_\([0-9]*\)/.*:\1:' | sort -n | tail -n 1)
    take &
    taker=$!
    trap 'kill "$taker"' EXIT
    ${TRAIN:-uv run --project "${PRIME_RL:-.}" torchrun --standalone --nproc-per-node "$ranks" \
        -m prime_rl.trainer.rl.train} @ "$here/prime_rl.toml" \
        --output-dir "$run" --max-steps "$steps" --model.name "$parent" \
        ${resume:+--resume.step "$resume"} "$@"
fi

# What it offers are weights alone; the rest of the model is the parent's.
for file in "$parent"/*; do
    case $file in
        *.safetensors | *.safetensors.index.json | *.bin | *.bin.index.json | *.pt | *.gguf) ;;
        *) cp -R "$file" "$PENSTOCK_OUTPUT" ;;
    esac
done
cp "$last"/* "$PENSTOCK_OUTPUT"
python3 -c 'import os, penstock; penstock.trained(os.environ["PENSTOCK_OUTPUT"])'
