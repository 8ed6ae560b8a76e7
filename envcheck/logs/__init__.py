"""What the log of a failed run reports: its events, the environment that it prints, and the diagnosis.

`scanner` searches bytes for known words, `line_reader` turns the lines around them into `events` with
`tracebacks`, `environment` reads the facts that a log prints, and `diagnosis` finds the first cause.
`own_code` knows whose file a frame is in, and `environment_match` compares the cause with an environment.
May import core, rules and knowledge. It must not read files or know how the result is displayed.
"""
