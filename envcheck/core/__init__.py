"""The vocabulary of the project and the tools that every package uses.

`facts`, `rules`, `findings` and `errors` define the terms: a *fact* has a *reading*; a *rule* forbids a
combination of facts that its *clauses* describe; the *verdict* on a rule becomes a *finding*; a
*diagnostic* reports a mistake in a configuration. The other modules compare versions, parse and locate text,
clean output, and translate.

Imports no other package of envcheck. It must not know the machine it runs on, where knowledge comes from, or
which command runs. Its modules are on the start-up path, so what they import counts.
"""
