"""What the agent thinks, says it will do, and reports.

Slots: `<path>` and `<file>` a file of the session, `<func>`, `<type>` and `<plain>` identifiers of
the file in focus, `<key>` and `<word>` words that it uses, `<noun>`, `<quality>` and `<act>` any.
"""

from penstock_jobs.simulator.grammar import lines

REASONING = {
    "look": lines("""
read
open
go through
check
compare
trace
inspect
print
search for
step through
look up
list
re-read
"""),
    "hedge": lines("""
probably
maybe
it seems
for the <quality> <noun>
on a <quality> run
after the <act>
by line <line>
since <hex>
with <num> of them
going by the <noun> log
unless the <noun> is <quality>
for anything but <name>
"""),
    "so": lines("""
so
which is why
therefore
and then
but
because
even though
while
as soon as
unless
although
"""),
    "thing": lines("""
<plain>
<func>
<type>
`<file>`
the <noun>
the <quality> <noun>
the <noun>'s <noun2>
<plain>.<noun>
`<func>(<name>)`
line <line> of `<file>`
the <act> call
a <noun> with <num> of <quality> <noun2>
the <module> <noun>
"""),
    "does": lines("""
drops
ignores
copies
caches
overwrites
expects
hands back
renames
never sees
waits for
shadows
mutates
runs before
still imports
depends on
doubles
leaks
rounds
"""),
    "finding": lines("""
<thing> <does> <thing2>
<thing> <does> <thing2> when <plain> is <num>
<hedge> <thing> <does> <thing2>
<thing> <complaint>
<thing> <complaint>, <so> <thing2> is <quality>
nothing will <act> <thing> between two calls of <func>
<thing> comes before <thing2> there
the test only covers a <noun> with <line> rows
<func> may <act> <thing> twice
`<file>` swallows the <error>
<thing> is <quality>, not <quality2>
"""),
    "step": lines("""
<look> `<file>`
<look> <thing> and <thing2>
<look> <thing> first
<act> the <noun> in <func> only
run the <module> tests with a <quality> <noun>
write the case where <thing> <complaint>
split <func> so that the <noun> part stands alone
pass <plain> down to <thing>
<act> <thing> once and hand it on
leave <thing> alone
move <thing> next to <thing2>
set <plain> to <num> and see whether <thing> still <does> it
"""),
    "thought": lines("""
So <finding>, <so> <finding2>.
<hedge>, <finding>.
<finding>. <finding2>.
I should <step> before I <act> anything.
"<noun> <complaint>" would fit if <finding>.
Either <step>, or <step2>; the first is smaller.
Hmm, <finding>, <so> I'd rather <step>.
If <thing> were <quality>, <func> would <act> early.
Could <step>, but <finding>.
The user wants <thing> to <act> <thing2>, <so> <finding>.
Line <line> is suspicious: <finding>.
Next: <step>, then <step2>.
No. <func> gets a <type>, <so> <plain> is never <quality>.
A race? <finding> while <finding2>.
Wait: <finding>, and <num> in the log is <thing>.
<step>; don't guess.
What about <thing>? It <does> <thing2> <hedge>.
<noun>=<line>, <noun2>=<hex>, <name>=<num>: <quality>?
`<name> = <func>(<name2>.<noun>, <num>)` can <act>.
<act> <noun>, <act2> <noun2>, <act3> <noun3>.
<quality> <noun> (<line> <noun2>), <quality2> <noun3> (<num>).
Not <act>, not <act2>: <quality> <noun>.
<hex> is the <noun>, <hex2> its <quality> <noun2>.
In `<file>` there is <name> = <num>, and in <func> <name2> = <num2>.
"""),
    "lead": lines("""
I'll <step>.
Now I'll <step>, then <step2>.
<finding>. Let me <step>.
That confirms it: <finding>. Next I will <step>.
Let me <step>.
<hedge> <finding>, <so> I'll <step>.
Found it: <finding>.
Interesting: <finding>, and <finding2>.
The <module> tests still fail, <so> <finding>.
"""),
    "change": lines("""
- `<func>` takes <thing> once and hands it to <thing2>
- `<file>`: <func> no longer <does> <thing>
- <type> got a <noun>, <quality> by default
- <thing> is refused with <error> when it <complaint>
- <num> in <func> became `<plain>` (<num2>)
- <thing> is gone, only <func> used it
- new case: <thing> <complaint>
- <func2> and <func> share one helper to <act> the <noun>
- the query on <plain> <does> <quality> rows only
- `<name>` is <act>-only now, see line <line>
"""),
    "closing": lines("""
All <line> tests of <module> pass.
I did not touch <thing>; it <complaint> too and may want its own change.
The <module> tests need <thing>, which I don't have here: please run them once.
If <thing> should be covered as well, <func2> is the place.
One thing to know: <finding>.
Nothing else <does> <func>, so the change stays inside `<file>`.
<thing> keeps its old default of <num>.
Open question: should <thing> <act> <thing2> <hedge>?
"""),
    "verdict": lines("""
Done. The cause: <finding>.
Fixed: <finding>, <so> <thing> <complaint>.
<func> can <act> <thing> now.
<thing> works again with a <quality> <noun>.
I changed `<file>`: <thing> comes from <thing2>.
That is in. <finding>, and <finding2>.
Short version: <finding>.
"""),
    "recap": lines("""
Task: <finding>. Done so far: <step>; <step2>. Open: <thing> still <complaint>.
The user wants to <act> <thing> in `<file>`. Known: <finding>; <finding2>.
"""),
}
