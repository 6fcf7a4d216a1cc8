"""What tools print, line by line, and how they fail.

Slots are as in the prose; `<hex>` is an id, `<line>` a number of a line or a size, `<file>` a
path somewhere in the project.
"""

from penstock_jobs.simulator.grammar import lines, shapes, words
from penstock_jobs.simulator.vocabulary import COMPLAINTS, NOUNS, QUALIFIERS, VERBS

TOOL_OUTPUTS = {
    "complaint": COMPLAINTS,
    "noun": NOUNS,
    "quality": QUALIFIERS,
    "act": VERBS,
    "file": lines("""
<root>/<module>/<plain>.<extension>
<root>/<key>/<noun>_<word>.<extension>
<root>/<module>/<noun>/<word>.<extension>
"""),
    "frame": shapes("""
  File "<file>", line <line>, in <func>
    <name> = <func2>(<name2>, <key>=<num>)
---
  File "<file>", line <line>, in <func>
    return <name>.<key>[<word>]
---
    at <func> (<file>:<line>:<num>)
---
<file>:<line>: in <func>
    assert <name>.<key> == <num>
E   assert <hex> == <num>
"""),
    "log": lines("""
INFO  <module>.<key> <func> <noun>=<hex> took <line>.<num>ms
INFO  <module> <num> <quality> <key> in <line>ms req=<hex><hex2>
WARN  <module>.<noun> <key> <hex> <complaint>, try <num>
DEBUG <module> <plain>=<line> <noun>=<num> <noun2>=<hex>
ERROR <key>: <error>: <noun> <hex> <complaint>
INFO  <base>/<key>/<line> <num>b <hex> 10.<num2>.<num3>.<num4>
DEBUG <quality> <module>:<noun>:<hex> ttl=<num> <act> <line>
<module>[<line>]: <act> <noun> <hex> -> <quality> <noun2> <hex2>
"""),
    "check": lines("""
<file>:<line>:<num>: <func> has an unused variable `<name>`
<file>:<line>: error: argument "<name>" has type "<type>", expected "<type2>"
<file>(<line>,<num>): error: property '<key>' does not exist on type '<type>'
<file>:<line>:<num>: cannot use <name> as <type> value
<file>:<line>: note: <func> defined here
<file>:<line>: warning: <plain> shadows a <quality> <key>
"""),
    "hit": lines("""
<file>:<line>:    <name> = <func>(<name2>.<key>, <num>)
<root>/<key>/<plain>.<extension>:<line>:  return <func>(<name>[<num>], "<word>")
<root>/<module>/<key>/<plain>.<extension>:<line>:  // <quality> <word> <complaint>
<file>:<line>:  if <name>.<key> > <num> and <func>(<name2>):
<root>/<module>/test_<plain>.<extension>:<line>:    assert <func>(<word>=<num>).<key> == <name>
docs/<module>.md:<line>:The <quality> <key> of `<func>` <complaint> (<type>)
<root>/<module>/<word>.<extension>:<line>:import { <func>, <name> } from "<module>/<key>"
"""),
    "root": words("src lib web/src internal cmd app services db scripts"),
    "extension": words("py ts tsx go sql yaml"),
    "listing": lines("""
-rw-r--r--  <line><num> <file>
drwxr-xr-x  4096 <module>/<key>
<line><num>  <module>/<plain>.<word>
 M <file>
?? <module>/<plain>_<word>.tmp
"""),
    "record": lines("""
{"id":"<hex><hex2>","<key>":<line>,"<word>":"<qualifier>","<key2>_id":"<hex3>"}
{"<key>":{"<word>":"<hex>","<word2>":<num>},"<plain>":<line>.<num>}
{"at":<line><line2><num>,"<plain>":"<plain2>","error":"<word> <complaint>","span":"<hex>"}
{"<word>":["<hex>","<hex2>"],"<plain>":null,"<key>_<word>":<line>}
"""),
    "case": lines("""
tests/<module>/test_<plain>.py::test_<plain2>_<qualifier>_<word> ok <num>ms
tests/<module>/test_<plain>.py::test_<func>[<key>-<num>] ok <line>ms
tests/<module>/<key>/test_<plain>.py::Test<type>::test_<plain2>_<qualifier> skipped
tests/<module>/test_<word>.py::test_a_<key>_that_is_<qualifier>_<plain> ok 0ms
"""),
    "history": lines("""
<hex><hex2><hex3><hex4><hex5> <module>: <act> <quality> <noun>
<hex><hex2><hex3><hex4><hex5> <act> <noun> <noun2> (#<line><num>)
commit <hex><hex2><hex3><hex4><hex5> (<quality>/<noun>): <noun2> <complaint>
"""),
    "locked": lines("""
<noun>-<act>@<num>.<num2>.<num3> sha256:<hex><hex2><hex3><hex4><hex5><hex6><hex7><hex8>
<quality>-<noun>@0.<num>.<line> (<noun2>-<act> >=<num2>) <hex><hex2><hex3><hex4>
"""),
    "row": lines("""
 <hex>-<hex2>-<hex3>-<hex4> | <quality> | <num>.<num2> | <noun>
 <line><num> | <hex> | <qualifier> | <num>.<num2>
 <line> | <plain> | <key> | <num>
 <line><num2> | <hex>-<hex2> | <word> <complaint> | <num>
"""),
    "invalid_arguments": lines("""
invalid arguments: `<key>` is required but got `<plain>`
arguments are not an object: expected , or } at column <num>
unknown parameter `<word>` for this tool, did you mean `<key>`?
old_text was not found in <path>; the closest match is at line <line>
"""),
    "unexpected_environment": lines("""
<path>: no such file or directory
command not found: <word>
permission denied while writing <path>
port <num><num2> is already in use by process <line>
"""),
    "provider_error": lines("""
upstream answered 529, request <hex><hex2>
the model's stream ended before the tool call was complete, request <hex><hex2>
"""),
    "user_aborted": lines("""
the user stopped this command after <num> s
the user declined the change to <path>
"""),
    "timeout": lines("""
no answer after <num>000 ms; the last line was: <log>
killed after <num> s, <num2> tests had run
"""),
    "unknown": lines("""
exit status <num>
internal error <hex>
"""),
}
