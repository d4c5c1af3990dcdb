package accounts

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
	"verifyd/edge/account"
	"verifyd/edge/client/manage"
	"verifyd/sessions/timeline"
)

type accountAuditCmd struct {
	command.Managed `embed:""`
	table.Listing   `embed:""`

	Name  string `arg:"" help:"The account's name or id; if it was deleted, its id."`
	Limit int    `default:"50" help:"Maximum number of records, newest first; 0: all."`
}

// Run lists the records.
func (a accountAuditCmd) Run(ctx context.Context, c command.Console) error {
	return a.Manage(ctx, c, func(m command.Manager) error {
		id := a.Name // of an account that was deleted, too
		if !account.IsID(id) {
			var err error
			if id, err = m.Find(ctx, a.Name); err != nil {
				return err
			}
		}
		read := func(from string, limit int) ([]manage.Record, string, error) {
			records, next, err := m.Audit(ctx, id, from, limit)
			return records, next, command.BadInput(err)
		}
		return listAudit(c, a.Limit, a.Listing, read)
	})
}

// maxAuditPage is the maximum of records in one answer.
const maxAuditPage = 100

// listAudit writes out the newest records of a log; all of them if the limit is 0.
func listAudit(c command.Console, limit int, as table.Listing,
	read func(cursor string, limit int) (records []manage.Record, next string, err error)) error {
	if limit < 0 {
		return config.Usage(fmt.Errorf("--limit: %d is below zero; give a number of records, or 0 for all",
			limit))
	}
	if limit == 0 {
		limit = math.MaxInt
	}
	t := table.New("records", "AT", "WHO", "WHAT", "ON", "DETAIL")
	cursor, left := "", limit
	for {
		records, next, err := read(cursor, min(left, maxAuditPage))
		if err != nil {
			return err
		}
		for _, r := range records {
			if len(r.Detail) == 0 {
				r.Detail = nil // null for programs, wherever it comes from
			}
			who := r.Who
			if id := command.Or(r.Identity); id != "" && id != who {
				who += " (" + id + ")"
			}
			t.Add(r.At, timeline.Legible(who), r.What, timeline.Legible(command.Or(r.On)),
				table.NewCell(detailText(r.Detail), r.Detail))
		}
		left -= len(records)
		if cursor = next; cursor == "" || left == 0 {
			return as.Print(c.Out, t)
		}
	}
}

func detailText(detail map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(detail)) {
		parts = append(parts, name+": "+timeline.Legible(detail[name]))
	}
	return table.OrDash(strings.Join(parts, ", "))
}
