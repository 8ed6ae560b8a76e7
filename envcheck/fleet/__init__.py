"""Many nodes: their host lists, what launchers tell each process, how nodes differ, and the report on all.

May import core, rules and reports. It must not read files, reach other nodes or know how records arrive.
"""
