"""What rules mean: clauses and their relations, derived facts, the judge, and the fixes that work.

May import `core`. It must not know where rules are stored, which machine was read, or how a verdict is
shown. A change is judged in three steps: `changes` applies it to the facts as read, `derive` adds what
follows, `judge` evaluates the rules.
"""
