"""What the log of a failed run says: the scanner, the environment it prints, and the diagnosis.

May import core, rules and knowledge. It must not read files or know how the answer is shown.
"""
