"""The program as a user starts it: whole processes, their output and their exit codes."""
