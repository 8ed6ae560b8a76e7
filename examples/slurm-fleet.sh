#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
# All nodes of the job are judged together before the first step: one task a node asks, the first one prints for all, and
# the job ends here if it may not start (1), or if nobody can tell because a node is missing (3).
set -eu
: "${ENVCHECK:=envcheck}" "${ENVCHECK_ENV:=/nfs/env}" "${ENVCHECK_SHARED:=/nfs/scratch}"
srun --ntasks-per-node=1 "$ENVCHECK" fleet --python "$ENVCHECK_ENV" --via "$ENVCHECK_SHARED"
srun python3 train.py
