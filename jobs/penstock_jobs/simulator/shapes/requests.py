"""What users ask for.

Slots: `<path>` and `<file>` a file of the session, `<func>`, `<type>` and `<plain>` identifiers of
the file in focus, `<key>` and `<word>` words that it uses, `<noun>`, `<quality>` and `<act>` any.
"""

from penstock_jobs.simulator.grammar import lines

REQUEST = {
    "where": lines("""
in `<path>`
in <func>
on the <module> side
for every <quality> <key>
when the <key> is <quality>
in the <module> job
before the <noun> is saved
"""),
    "extra": lines("""
The log of <day> has request <hex> and then "<noun> <complaint>", <line> times.
I'd start from <thing>, <person> says that <finding>.
Background: the <noun> team wants to <act> each <quality> <noun2> by <day>, and <finding>.
See ticket <line><num>: <thing> <complaint>, at least for <person>'s <quality> <noun>.
Please keep the public signature as it is.
Add a test that fails without the change.
No new dependencies, we ship this on <day>.
The <noun> rows in staging all look <quality>, so start there.
<person> tried to patch this in the <module> module but it came back.
I think it broke around the time we renamed <plain>, not sure though.
Don't touch `<path>`, somebody else is in there right now.
It only happens with more than <num> of them.
If you need a migration write it but don't run it.
Same style as <func2> would be good.
You can ignore the <quality> <key> case for now.
Customers see "<noun> <complaint>" roughly <num> times a day.
ci has been red since <day> because of this
Also rename <plain> to something that says it is a <key>.
"""),
    "goal": lines("""
stops losing the <quality> <key>
returns a <type> instead of a bare dict
handles more than <num> <noun> rows
no longer says that a <key> <complaint>
retries <num> times and then gives up
takes the <key> from the <noun>, not from <plain>
is safe to call twice with the same <noun>
sorts by <key> before <noun>
"""),
    "request": lines("""
The <noun> <complaint> <where>. Can you find out why and fix it? <extra> <extra2>
add a <key> filter <where>, default <num>. <extra> <extra2>
Refactor <func> so that it <goal>. <extra> <extra2>
We get "<error>: <noun> <complaint>" <where> since yesterday. <extra> <extra2>
write a query that lists each <quality> <key> with its latest <noun>, and use it <where>
Why does <func> look at the <quality> <noun> twice? If there is no reason, make sure it <goal>.
I want a <type> that <goal>. It should live next to `<path>`. <extra> <extra2>
tests for <func> are flaky, about one run in <num>: the <noun> <complaint>. <extra> <extra2>
make the <module> page show <plain> per <key>, <quality> while it loads. <extra> <extra2>
Port the <key> logic from <func2> to <func> so it <goal>, then delete the old one. <extra> <extra2>
we need an endpoint under <base>/<key> <where>. body has <plain> and a <noun>. <extra> <extra2>
The <module> job takes <num> minutes <where>. Profile it and make it quicker. <extra> <extra2>
Upgrade the <noun> code to the new <type>. <extra> <extra2> <extra3>
"""),
}
