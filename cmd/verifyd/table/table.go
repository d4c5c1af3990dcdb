// Package table shows the rows that a command found: to people in columns, to programs as one JSON document.
package table

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
)

// Listing is what commands share that print tables.
type Listing struct {
	JSON bool `name:"json" help:"Print one JSON document instead of a table."`
}

// Table is what a command shows in rows: to people in columns, to programs as a JSON list of objects.
// Both are made of the same cells, so that none of them lacks what the other one has.
type Table struct {
	name    string // in the JSON document
	columns []column
	rows    [][]any
	card    bool // one object, whose columns are shown one below the other
}

// column is known to people by its title, and to programs by the name of a member.
type column struct{ title, member string }

// Cell is a value that people read in other words than programs.
type Cell struct {
	Text  string
	value any
}

// NewCell returns a cell.
func NewCell(text string, value any) Cell { return Cell{text, value} }

// New makes a table of columns. A title is the name of the member, in lower case and with _ for
// spaces, unless one stands behind a colon. A column without a title is for programs alone, and one with
// nothing behind the colon for people.
func New(name string, titles ...string) *Table {
	t := &Table{name: name, rows: [][]any{}}
	for _, title := range titles {
		title, member, named := strings.Cut(title, ":")
		if !named {
			member = strings.ReplaceAll(strings.ToLower(title), " ", "_")
		}
		t.columns = append(t.columns, column{title, member})
	}
	return t
}

// NewCard makes a table of the one row that add gives it.
func NewCard(name string, titles ...string) *Table {
	t := New(name, titles...)
	t.card = true
	return t
}

// Add adds a row: a value for each column. What is empty, or an instant that is zero, is not known.
func (t *Table) Add(values ...any) {
	if len(values) != len(t.columns) {
		panic(fmt.Sprintf("table %s: %d values for %d columns", t.name, len(values), len(t.columns)))
	}
	t.rows = append(t.rows, values)
}

// Print writes the tables, one below the other, or one JSON document with all of them.
func (l Listing) Print(w io.Writer, tables ...*Table) error {
	if l.JSON {
		doc := map[string]any{}
		for _, t := range tables {
			doc[t.name] = t.document()
		}
		return printJSON(w, doc)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, t := range tables {
		if i > 0 {
			_, _ = fmt.Fprintln(tw)
		}
		for _, line := range t.lines() {
			_, _ = fmt.Fprintln(tw, strings.Join(line, "\t"))
		}
	}
	return tw.Flush()
}

// printJSON writes one document as people can read it, too.
func printJSON(w io.Writer, doc any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(doc)
}

// lines are the rows for people, below the titles or, on a card, beside them.
func (t *Table) lines() (lines [][]string) {
	var titles []string
	for _, c := range t.columns {
		if c.title != "" {
			titles = append(titles, c.title)
		}
	}
	if !t.card {
		lines = append(lines, titles)
	}
	for _, row := range t.rows {
		var line []string
		for i, c := range t.columns {
			switch {
			case c.title == "":
			case t.card:
				lines = append(lines, []string{c.title, asText(row[i])})
			default:
				line = append(line, asText(row[i]))
			}
		}
		if !t.card {
			lines = append(lines, line)
		}
	}
	return lines
}

// document are the rows for programs.
func (t *Table) document() any {
	objects := make([]map[string]any, len(t.rows))
	for r, row := range t.rows {
		objects[r] = map[string]any{}
		for i, c := range t.columns {
			if c.member != "" {
				objects[r][c.member] = asValue(row[i])
			}
		}
	}
	if t.card && len(objects) == 1 {
		return objects[0]
	}
	return objects
}

func asText(value any) string {
	switch v := value.(type) {
	case Cell:
		return v.Text
	case time.Time:
		return Instant(v)
	case nil:
		return OrDash("")
	}
	return OrDash(fmt.Sprint(value))
}

// asValue is null where nothing is known.
func asValue(value any) any {
	switch v := value.(type) {
	case Cell:
		return asValue(v.value)
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return Instant(v)
	}
	if reflect.ValueOf(value).Kind() == reflect.String && reflect.ValueOf(value).Len() == 0 {
		return nil
	}
	return value
}

// UnlessZero is for cells whose zero stands for a default.
func UnlessZero[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// Instant writes an instant by RFC 3339; - where there is none.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

// Exactly writes an instant as the contract does, in UTC with milliseconds.
func Exactly(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// OrDash returns a text, or - in the place of none.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
