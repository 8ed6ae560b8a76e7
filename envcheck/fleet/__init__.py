"""Many nodes: host lists, launcher variables, and the comparison of nodes by their facts.

`records` parses one node's facts. `comparisons` lists the facts that should be equal on all nodes.
`grouping` finds the nodes that the judge cannot tell apart. `profiles` and `differences` compare nodes.
`collect` takes the records one by one, `summary` turns them into a report, and `report` prints it.
`hostlist` and `launchers` do not depend on the others.

May import `core`, `rules` and `reports`. It must not read files, reach other nodes, or know how records
arrive.
"""
