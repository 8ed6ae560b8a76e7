"""Launch scripts: shell scripts that are followed without being run, and the training programs they start.

A text passes through the modules in this order: `words` and `parser` read the shell grammar into the nodes of
`syntax`; `control_flow`, `simple_commands`, `assignments` and `builtins` follow these nodes; `prefixes` knows
the programs that start another one, and `project_paths` the files that a path of another machine may mean;
`expansion`, `arithmetic` and `conditions` compute the values of `values` on the way; `follow` returns the
commands that were found; `launchers` separates the arguments of a launcher from those of the program, and
`processes` counts processes.

May import core and the value types of `training_config.document`. It must not know the readers or what the
name of a setting means: `readers/_launch_documents.py` turns a launch line into settings.
"""
