package accounts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
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
		read := func(from string, limit int) ([]command.Record, string, error) {
			return m.Audit(ctx, a.Name, from, limit)
		}
		return listAudit(c, a.Limit, a.Listing, read)
	})
}

// listAudit writes out the newest records of a log; all of them if the limit is 0.
func listAudit(c command.Console, limit int, as table.Listing,
	read func(cursor string, limit int) (records []command.Record, next string, err error)) error {
	if limit < 0 {
		return config.Usage(fmt.Errorf("--limit: %d is below zero; give a number of records, or 0 for all",
			limit))
	}
	t := table.New("records", "AT", "WHO", "WHAT", "ON", "DETAIL")
	cursor, left := "", limit
	for {
		records, next, err := read(cursor, left)
		if err != nil {
			return err
		}
		for _, r := range records {
			t.Add(r.At, timeline.Legible(r.Who), r.What, timeline.Legible(r.On),
				table.NewCell(detailText(r.Detail), r.Detail))
		}
		left -= len(records)
		if cursor = next; cursor == "" || limit > 0 && left <= 0 {
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
