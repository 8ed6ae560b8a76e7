"""The command line: `main` (entry), `options` and `output` (shared), and one module for each command.

A command turns its options into one request, calls one use case of `envcheck.commands` and writes the
result through `output`. It may import any package. It must not decide anything: verdicts and their exit codes
come from the packages below.
"""
