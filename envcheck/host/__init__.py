"""Access to the machine that envcheck runs on: files, processes, environment variables, signals, terminals.

`machine` holds `Host`, the machine that is judged, or a tree of its files. `files`, `package_files`,
`processes`, `environment` and `signals` hold what envcheck's own process does; `pty_passthrough` runs a
command in the foreground. Every other package reaches the operating system through these modules, so
every read has a size limit and every process a deadline.

May import `core`. Pure packages must not import it. It must not know what is read, or why.
"""
