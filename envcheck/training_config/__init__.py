"""What a training configuration says: texts read into settings with places, and what a setting means.

May import core and rules. It must not touch files or processes, and must not know which program launched it.
Names and meanings of a trainer are rows in compat/dialects, not code.
"""
