"""The nouns and small tools that every other package uses: facts, rules, findings, errors, versions, text.

Imports nothing of envcheck outside itself. It must not know the machine it runs on, where knowledge comes
from, or which command asks.
"""
