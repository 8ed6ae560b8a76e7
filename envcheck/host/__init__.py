"""The only door to the machine: files, processes with a deadline, environment variables, signals, terminals.

May import core. Nothing pure imports it; it must not know what is read or why.
"""
