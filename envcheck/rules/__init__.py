"""What a rule says and whether it is broken: clauses, derived facts, the judge.

May import core. It must not know where rules are stored, which machine was read, or how a verdict is shown.
"""
