"""The words in code: what comments, messages and documentation say, in every language.

Each language has the same rules beside these: `head` starts a file, `open`, `step` and `close`
make a function, `record` is a block of its own, `expr` is a value.
"""

from penstock_jobs.simulator.grammar import lines
from penstock_jobs.simulator.vocabulary import COMPLAINTS, NOUNS, QUALIFIERS, VERBS

CODE_WORDS = {
    "complaint": COMPLAINTS,
    "noun": NOUNS,
    "quality": QUALIFIERS,
    "act": VERBS,
    "doc": lines("""
Return the <quality> <noun> of a <word>
Build a <word> for each <quality> <noun>
Keep <noun> rows that <key> may still <act>
Move <word> into its <quality> <noun>
Count how often a <noun> <complaint>
Decide whether to <act> the <key>
For the <module> <noun>: <quality> <word> first
The <noun> wins over <word> when both <act>
Refuse a <noun> that <complaint>
Split <key> by <noun>, then <act>
Never <act> while a <noun> is <quality>
A <quality> <noun> with its <noun2> and <key>
"""),
    "note": lines("""
<key> may be <quality> here, see <module>
a <noun> <complaint>
keep in step with <func>
cheaper than to <act> the <noun> again
<num> was measured with a <quality> <noun>
<noun> before <noun2>: they <act> the <key>
only <module> will <act> this
<func> and <func2> disagree about <name>
<quality> <noun>, not <quality2> <noun2>
see <type>.<noun>
ticket <num><num2>: <noun> <complaint>
"""),
}
