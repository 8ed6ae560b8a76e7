"""A real Ray cluster of several nodes on this machine, for `test_fleet.py`; run by a Python that has ray.

`python ray_cluster.py NODES` starts a head and the given number of nodes that claim to have a GPU, all on
127.0.0.1. When all are up, it prints one JSON line: the address, and the process id of each node's raylet by
the node's number. When standard input is closed, it stops the cluster.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

# No data leaves this machine: Ray sends no statistics, and the only address is the loopback address.
LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def main(count: int) -> None:
    """Start the cluster, print its address, wait, stop it."""
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 * 1024 * 1024, "num_cpus": 1, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(
        initialize_head=True, head_node_args={**small, "num_gpus": 0, "include_dashboard": False}
    )
    try:
        nodes = [cluster.add_node(**small, num_gpus=1) for _ in range(count)]
        cluster.wait_for_nodes(timeout=60)
        raylets = {node.node_id: node.all_processes["raylet"][0].process.pid for node in nodes}
        sys.stdout.write(json.dumps({"address": cluster.address, "raylets": raylets}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    # The path of a Unix socket has at most about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        os.environ.update(LOOPBACK, RAY_TMPDIR=short)  # noqa: TID251
        main(int(sys.argv[1]))
