"""The searches over versions: for a lock, for why there is none, and for the smallest change that helps.

May import core, rules, lock and knowledge. It must not reach the network or run an installer; that is the
work of resolver_backends.
"""
