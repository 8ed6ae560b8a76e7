"""The use cases, one module per command: read at the edge, judge in the core, return values to show.

May import everything below. It must not print, parse arguments or know how output is shown.
"""
