"""Many nodes: host lists, launcher variables, and the comparison of nodes by their facts.

`records` reads one node's facts; `comparisons` says which facts should be equal on all nodes; `grouping`
tells which nodes are equal for the judge; `profiles` and `differences` compare them; `collect` takes the
records one by one; `summary` turns them into a report, which `report` prints. `hostlist` and `launchers`
stand alone.

May import `core`, `rules` and `reports`. It must not read files, reach other nodes, or know how records
arrive.
"""
