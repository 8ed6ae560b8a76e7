#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
# Before the first step, one task per node reads the node's facts, and the first task judges all nodes and prints the report.
# The job ends here if it may not start (exit code 1) or if a node is missing (3).
set -eu
: "${ENVCHECK:=envcheck}" "${ENVCHECK_ENV:=/nfs/env}" "${ENVCHECK_SHARED:=/nfs/scratch}"
srun --ntasks-per-node=1 "$ENVCHECK" fleet --python "$ENVCHECK_ENV" --via "$ENVCHECK_SHARED"
srun python3 train.py
