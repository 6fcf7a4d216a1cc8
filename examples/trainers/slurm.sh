#!/bin/sh
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --time=08:00:00
#SBATCH --requeue
# A job that was requeued goes on from its own snapshots in PENSTOCK_WORK. One that was submitted
# twice finds the answer of the first.
test -e "$PENSTOCK_ANSWER" && exit 0
exec ${TRAIN:-srun python3 train.py}
