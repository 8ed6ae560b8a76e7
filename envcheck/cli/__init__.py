"""The command line: options in, one use case called, its report shown through the one output boundary.

May import everything. It must not decide anything.
"""
