"""Reports: their wording (this package's modules) and the layout of each output format (`formats/`).

`render` is the output boundary. `phrases`, `overview`, `details`, `findings`, `plan_steps` and `plan_text`
hold the wording that several formats share. `diff` and `explanation` are separate reports.

May import `core`, `rules`, `knowledge`, `logs` and everything else below. It must not read files, run
programs or judge anything: a format arranges what a `Report` contains.
"""
