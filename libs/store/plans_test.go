package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
)

// plan is what EXPLAIN says of one node.
type plan struct {
	NodeType  string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	IndexName string `json:"Index Name"`
	IndexCond string `json:"Index Cond"`
	Plans     []plan
}

// unkeyed names what the plan reads as a whole: a table, or an index of more than what is open.
func (p plan) unkeyed() (found []string) {
	open := map[string]bool{
		"payments_open": true, "outbox_waiting": true, "outbound_messages_open": true, "outbound_messages_spent": true, "obligations_due_next": true, "cycles_unclosed": true,
	}
	switch {
	case p.NodeType == "Seq Scan":
		found = append(found, p.Relation)
	case p.IndexName != "" && p.IndexCond == "" && !open[p.IndexName]:
		found = append(found, p.IndexName)
	}
	for _, child := range p.Plans {
		found = append(found, child.unkeyed()...)
	}
	return found
}

// A statement is planned once per connection, when its tables may be new, or were analysed while they were small. None
// may have a plan that gets slow when they are not small any more.
func TestStatementsReachTheirRowsByKeyAfterAnyStatistics(t *testing.T) {
	t.Parallel()
	b := setupBooks(t)
	conn := side(t, b.url)
	_, err := conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
	require.NoError(t, err)
	check := func(when string) {
		for _, file := range []string{"coreevents", "cycles", "housekeeping", "idempotency", "look", "obligations", "outbound", "outbox", "payments", "reconciliations", "resend", "statements"} {
			text, err := os.ReadFile("queries/" + file + ".sql")
			require.NoError(t, err)
			for _, query := range strings.Split(string(text), "-- name: ")[1:] {
				title, sql, _ := strings.Cut(query, "\n")
				if strings.Contains(sql, "-- Index: none") {
					continue
				}
				if f := explain(t, conn, sql).unkeyed(); len(f) > 0 {
					t.Errorf("%s, %s: %v", title, when, f)
				}
			}
		}
	}
	check("never analysed")
	ops := b.ordered(t, e2e(1), e2e(2))
	for i := range 40 {
		p := order(e2e(100 + i))
		p.State = pix.Rejected
		b.insert(t, p)
	}
	b.build(t, draft(msgID(1), 1, ops...))
	_, err = conn.Exec(t.Context(), "ANALYZE")
	require.NoError(t, err)
	check("analysed when small")
	_, err = conn.Exec(t.Context(), `INSERT INTO payments (id, kind, direction, state, amount, channel, counterparty, document, accepted_at)
		SELECT 'E12345678202612020000' || lpad(n::text, 11, '0'), 'payment', 'out', 'rejected', 1, 'cpm', '87654321', '{}', now()
		FROM generate_series(1, 5000) n`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "ANALYZE")
	require.NoError(t, err)
	check("analysed when large")
}

// explain returns the generic plan of a statement of sqlc.
func explain(t *testing.T, conn *pgx.Conn, sql string) plan {
	t.Helper()
	var nulls []string
	numbers := map[string]string{}
	sql = regexp.MustCompile(`@\w+`).ReplaceAllStringFunc(sql, func(name string) string {
		if numbers[name] == "" {
			nulls = append(nulls, "NULL")
			numbers[name] = fmt.Sprintf("$%d", len(nulls))
		}
		return numbers[name]
	})
	_, err := conn.Exec(t.Context(), "PREPARE asked AS "+strings.TrimRight(strings.TrimSpace(sql), ";"))
	require.NoError(t, err, sql)
	call := "EXPLAIN (FORMAT JSON) EXECUTE asked"
	if len(nulls) > 0 {
		call += "(" + strings.Join(nulls, ", ") + ")"
	}
	var text []byte
	require.NoError(t, conn.QueryRow(t.Context(), call).Scan(&text))
	_, err = conn.Exec(t.Context(), "DEALLOCATE asked")
	require.NoError(t, err)
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(text, &plans))
	return plans[0].Plan
}
