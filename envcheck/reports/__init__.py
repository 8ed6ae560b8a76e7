"""Reports: what they say (this package's modules) and how each output format lays it out (`formats/`).

`render` is the output boundary. `phrases`, `overview`, `details`, `findings`, `plan_steps` and `plan_text`
hold what several formats say in the same words; `diff` and `explanation` are reports of their own.

May import `core`, `rules`, `knowledge`, `logs` and everything else below. It must not read files, run
programs or judge anything: a format arranges what a `Report` contains.
"""
