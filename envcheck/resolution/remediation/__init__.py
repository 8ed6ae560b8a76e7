"""The search for the smallest change: the fewest, smallest moves to an inventory that passes the judge.

May import core, rules and knowledge. It must not know where the tables come from or how a plan is shown.

A *state* is the inventory as read, with some facts changed. Its successors are the ways out of the findings
that are still unresolved there: the fixes of a rule and, for a metadata conflict, another release of either
package.

*Smallest* means: no administrator needed if possible, then fewest moves, then the smallest total size, then
the rest of `cost.Cost`. The size of a move, cheapest first: 1 for a patch release, or for a configuration
change without a cost; 2 for a minor release; 3 for a major release, or for a package that was not installed;
4 for a configuration change whose text names a cost, because it trains something else than the user asked
for. At equal size an upgrade goes before a downgrade, and then a combination that was measured before one
that was not.

The search is best-first by a lower bound on the moves of any answer beyond a state: the moves so far, plus
the number of unresolved rules that no move so far can affect and that share no fact with one another
(`bound`). Each of these rules needs a further move, so the bound never exceeds the true number (it is
*admissible*), and the first answer has the fewest moves. Within a limit on states the result is proved;
`Plan.proved` says how far. The tests compare the results with brute force over tiny worlds.

`releases` says which releases may be proposed, `cost` what a change costs, `state` judges states, `bound` is
the lower bound, `ways_out` lists the successors, `search` searches, and `plan` turns the answer into a plan
for the user.
"""
