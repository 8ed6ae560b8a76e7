"""The knowledge in compat/: loading, compiling and checking it, and the pages that show it.

May import core and rules. It must not know which machine is judged or what a report looks like.

`load` turns the TOML texts into a `Matrix`, and `overlay` lays a user's files over them. `compiled` is the
JSON form in the wheel, from which doctor starts. `tables` gives rows of tables as typed values.
`generated_rules` makes rules from metadata, self-tests and targets, and `log_signatures` finds failures in
logs. `lint` checks compat/ for mistakes. `rule_pages`, `package_pages` and `site` show what is known.
"""
