#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
# For users who cannot install a prolog: one task per node checks its node first; the job ends if one of them fails.
set -eu
: "${ENVCHECK:=envcheck}" "${ENVCHECK_MANIFEST:=/nfs/env/manifest.json}"
srun --ntasks-per-node=1 --kill-on-bad-exit=1 "$ENVCHECK" gate --runtime --manifest "$ENVCHECK_MANIFEST"
srun python3 train.py
