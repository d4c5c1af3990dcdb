// Package table prints rows: for people in columns, for programs as one JSON document.
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

// Listing is shared by commands that print tables.
type Listing struct {
	JSON bool `name:"json" help:"Print one JSON document instead of a table."`
}

// Table has rows that are printed for people in columns, and for programs as a JSON list of objects. Both
// consist of the same cells, so that neither lacks what the other has.
type Table struct {
	name    string // in the JSON document
	columns []column
	rows    [][]any
	card    bool // one object, whose columns are shown one below the other
}

// column has a title for people, and the name of a member for programs.
type column struct{ title, member string }

// Cell is a value with different forms for people and for programs.
type Cell struct {
	Text  string
	value any
}

// NewCell returns a cell.
func NewCell(text string, value any) Cell { return Cell{text, value} }

// New returns a table with these columns. The name of the member is the title in lower case with _ for
// spaces, unless a name follows after a colon. A column without a title is only for programs, and one with
// nothing after the colon only for people.
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

// NewCard returns a table for a single row.
func NewCard(name string, titles ...string) *Table {
	t := New(name, titles...)
	t.card = true
	return t
}

// Add adds a row: a value for each column. An empty value, or a zero instant, means unknown.
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
		return PrintJSON(w, doc)
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

// PrintJSON writes one document as people can read it, too.
func PrintJSON(w io.Writer, doc any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(doc)
}

// lines returns the rows for people, below the titles or, on a card, next to them.
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

// document returns the rows for programs.
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

// asValue returns null for an unknown value.
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

// UnlessZero is for cells whose zero means a default.
func UnlessZero[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// Instant formats an instant by RFC 3339; - if there is none.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

// Exactly formats an instant as the contract does, in UTC with milliseconds.
func Exactly(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// OrDash returns a text, or - if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
