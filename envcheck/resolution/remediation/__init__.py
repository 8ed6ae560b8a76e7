"""The search for the smallest change: the fewest, smallest moves to an inventory that passes the judge.

May import core, rules and knowledge. It must not know where the tables come from or how a plan is shown.

A *state* is the inventory as read, with some facts changed. Its successors are the ways out of the findings
that are still unresolved there: the fixes of a rule and, for a metadata conflict, another release of either
package.

*Smallest* means: as few moves as possible that only an administrator can make, then as few moves as possible,
then the smallest total size, then the rest of `cost.Cost`. The size of a move is 1 for a patch release, or
for a configuration change without a cost; 2 for a minor release; 3 for a major release, or for a package that
was not installed; 4 for a configuration change whose text names a cost, because it changes the training that
the user asked for. Uninstalling a package has size 1, or 3 if the fix names a cost. At equal size, upgrades
are preferred to downgrades, and then measured combinations to others. Before sizes are compared, an answer
that leaves no requirement on a changed package unmet is preferred to others with as many moves.

The search is best-first by a lower bound on the moves of any answer that can be reached from a state. The
bound (`bound`) is the moves so far, plus the number of unresolved rules that no move so far can affect and
that share no fact with one another. Each of these rules needs a further move. The bound is therefore
*admissible*: it never exceeds the true number, and the first answer has the fewest moves. Within a limit on
states the result is proved; `Plan.proved` says how far. The tests compare the results with brute force over
tiny worlds.

`releases` says which releases may be proposed, `cost` what a change costs, `state` judges states, `bound` is
the lower bound, `ways_out` lists the successors, `search` searches, and `plan` turns the answer into a plan
for the user.
"""
