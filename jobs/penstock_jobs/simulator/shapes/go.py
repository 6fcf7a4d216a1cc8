"""The shapes of Go."""

from penstock_jobs.simulator.grammar import lines, shapes
from penstock_jobs.simulator.shapes.code_words import CODE_WORDS

GO = {
    **CODE_WORDS,
    "head": shapes("""
package <module>

import (
\t"context"
\t"errors"
\t"fmt"

\t"example.org/app/internal/<word>"
)

var err<type> = errors.New("<word> <complaint>")
---
// Package <module>: <doc>.
package <module>

import (
\t"database/sql"
\t"log/slog"
\t"time"

\t"example.org/app/internal/<module2>"
\t"example.org/app/internal/<key>"
)

const <key>Limit = <num>
"""),
    "open": shapes("""
// <public>: <doc>.
func <public>(ctx context.Context, <name> *<type>, <key> int) (<type2>, error) {
---
func (s *<type>) <func>(<name> []<type2>, <name2> string) error {
---
// <public> <complaint>; <doc>.
func (s *<type>) <public>(ctx context.Context, <name> string) (*<type2>, error) {
---
func <func>(<name> map[string]<type>, <key> time.Duration) []<type2> {
"""),
    "expr": lines("""
<name>
<name>.<field>
<func>(<name>)
<func>(<name>.<field>, <num>)
<name>[<num>]
len(<name>.<field>)
"<key>_<word>"
<num>
s.<key>
s.<key>.<field>
&<type>{<field>: <name>}
int64(<name>) + <num>
<name>.<public>()
<name>[<name2>.<field>]
<num>*time.Millisecond
string(<name>.<field>)
!<name>.<field>
"""),
    "step": shapes("""
\t<name>, err := <func>(ctx, <name2>, <expr3>)
\tif err != nil {
\t\treturn nil, fmt.Errorf("<word> %q <complaint>: %w", <name2>, err)
\t}
---
\tif <name> == nil || len(<name>.<field>) > <num> {
\t\treturn <func>(<expr>)
\t}
---
\tfor <key>, <word> := range <name>.<field> {
\t\t<name2>[<key>] = <func>(<word>, <expr3>)
\t}
---
\t<name>.<field> = <name2>.<field2>
---
\tslog.Info("<word> <qualifier>", "<key>", <name>.<field>, "<key2>", <expr3>)
---
\tdefer func() { _ = <name>.Close() }()
---
\t// <note>
\t<name> := make([]<type>, 0, <num>)
---
\tswitch <name>.<field> {
\tcase "<qualifier>":
\t\t<name2>.<field2> += <num>
\tcase "<qualifier2>":
\t\treturn nil, err<type>
\t}
---
\ts.mu.Lock()
\t<name>, ok := s.<key>[<name2>]
\ts.mu.Unlock()
\tif !ok {
\t\treturn nil, err<type>
\t}
---
\tselect {
\tcase <name> := <-s.<key>:
\t\t<func>(<name>)
\tcase <-time.After(<num> * time.Millisecond):
\t\treturn nil, errors.New("<word> <complaint>")
\t}
---
\tif err := json.Unmarshal(<name>, &<name2>); err != nil {
\t\treturn nil, fmt.Errorf("decode <word>: %w", err)
\t}
---
\t<name> := <type>{<field>: <name2>, <field2>: <func>(<expr2>)}
---
\trows, err := s.db.QueryContext(ctx, "select <key>, <word> from <table> where <key2> > $1", <name>)
---
\tsort.Slice(<name>, func(a, b int) bool { return <name>[a].<field> < <name>[b].<field> })
---
\t<name> = append(<name>, <func>(<name2>.<field>, <expr3>)...)
---
\tif time.Since(<name>.<field>) > <num>*time.Second {
\t\ts.<func>(<name>)
\t\tcontinue
\t}
---
\tgo s.<func>(ctx, <name>, <name2>)
---
\t<name> := min(<name2>.<field>, <expr3>)
"""),
    "close": shapes("""
\treturn <expr>, nil
}

---
\treturn s.<func>(ctx, <name>)
}

---
\t<name>.<field> = time.Now().UTC()
\treturn &<name>, nil
}

"""),
    "record": shapes("""
// <type>: <doc>.
type <type> struct {
\t<field> string `json:"<key>"`
\t<field2> int64 `json:"<word>,omitempty"`
\t<key> map[string]*<type2>
}

---
type <type> interface {
\t<public>(ctx context.Context, <name> string) (<type2>, error)
\t<public2>(<name2> int) bool
}

"""),
}
