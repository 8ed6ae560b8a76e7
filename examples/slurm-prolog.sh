#!/bin/sh
# Prolog for Slurm (slurm.conf). slurmd runs it on a node before a job's first step. A node on which the cluster's environment
# cannot train is drained, and the job is requeued. The manifest was written when the environment was created:
#
#   envcheck gate --python /nfs/env --machine a100-r535 --manifest /nfs/env/manifest.json
#
# Slurm sets no PATH for a prolog, so programs need full paths. A driver that does not answer (code 3) drains the node as well.
# An unreadable manifest (code 2) is the administrator's mistake and does not drain the node.
: "${ENVCHECK:=/opt/envcheck/bin/envcheck}" "${ENVCHECK_MANIFEST:=/nfs/env/manifest.json}"
message=$("$ENVCHECK" gate --runtime --timeout 20 --manifest "$ENVCHECK_MANIFEST" 2>&1)
code=$?
[ "$code" -eq 0 ] || echo "envcheck: $message" >&2
[ "$code" -eq 2 ] && exit 0
exit "$code"
