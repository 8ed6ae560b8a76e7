"""The matrix in compat/: loading and compiling it, checking it, and the pages that show it.

May import core and rules. It must not know which machine is judged or how a report looks.
"""
