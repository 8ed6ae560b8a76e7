#!/bin/sh
# Prolog of Slurm (slurm.conf), run by slurmd on a node before a job's first step: a node on which the cluster's
# environment cannot train is drained, and the job goes elsewhere. The manifest was written when that was made:
#
#   envcheck gate --python /nfs/env --machine a100-r535 --manifest /nfs/env/manifest.json
#
# Slurm gives a prolog no PATH, so programs are named in full. A driver that does not answer (code 3) drains too;
# an unreadable manifest (code 2) is the administrator's mistake and no reason to drain a node.
: "${ENVCHECK:=/opt/envcheck/bin/envcheck}" "${ENVCHECK_MANIFEST:=/nfs/env/manifest.json}"
said=$("$ENVCHECK" gate --runtime --timeout 20 --manifest "$ENVCHECK_MANIFEST" 2>&1)
code=$?
[ "$code" -eq 0 ] || echo "envcheck: $said" >&2
[ "$code" -eq 2 ] && exit 0
exit "$code"
