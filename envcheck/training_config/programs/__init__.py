"""Follow a Python program through its project's modules, without running it, to the library calls it makes.

Each function, class and branch that the program reaches is interpreted with the values that are known. What
is computed is Unknown. `follow.follow` is the entry. Nothing here knows what a library call means for a
training.

The interpreter is a chain of classes, each of which adds one idea to the one before it: `expressions`,
`variables` (names, attributes, imports), `calls`, `classes`, `statements`, `interpreter` (modules),
`python_configurations` (absl, mmengine), `command_lines` (argparse, Hydra), `own_launchers` (click, Typer,
Fire), `dataclass_parsers`, and `libraries` (what other known functions return).
"""
