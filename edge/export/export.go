package export

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/lists"
)

// Format is the format in which many sessions are written.
type Format string

// The formats.
const (
	CSV   Format = "csv"
	Lines Format = "jsonl"
	// Sheet is CSV for spreadsheets, which otherwise read UTF-8 as another encoding and round long numbers:
	// it begins with a byte order mark, and a cell of digits alone is a formula whose value is that text.
	Sheet Format = "sheet"
)

// pageSize is how many sessions are in memory at once.
const pageSize = 100

// MediaType returns the format's media type for Content-Type.
func (f Format) MediaType() string {
	if f != Lines {
		return "text/csv; charset=utf-8; header=present" // RFC 4180 §3
	}
	return "application/jsonl"
}

// File returns the name of a file in the format.
func (f Format) File() string {
	if f == Lines {
		return "sessions.jsonl"
	}
	return "sessions.csv"
}

// Accepted returns the format that an Accept header prefers to application/json (RFC 9110 §12.5.1).
func Accepted(accept []string) (Format, bool) {
	for header := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, _, _ := strings.Cut(header, ";")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "text/csv":
			return CSV, true
		case "application/jsonl", "application/x-ndjson":
			return Lines, true
		case "application/json":
			return "", false
		}
	}
	return "", false
}

// Pages reads the pages of a list in order and passes each on. It reads the next page when that is done, so
// that only one is in memory. If it cannot continue, it returns the error.
func Pages(ctx context.Context, q lists.Query,
	list func(context.Context, lists.Query) (lists.Page, error), do func([]facts.View) error) error {
	for q.Limit = pageSize; ; {
		page, err := list(ctx, q)
		if err == nil {
			err = do(page.Sessions)
		}
		if err != nil || page.Next == "" {
			return err
		}
		q.Cursor = page.Next
	}
}

// Writer writes sessions in a format.
type Writer struct {
	lines io.Writer
	cells *csv.Writer
	sheet bool
}

// NewWriter returns a writer. For CSV it writes the header row at once.
func NewWriter(to io.Writer, f Format) (*Writer, error) {
	if f == Lines {
		return &Writer{lines: to}, nil
	}
	w := &Writer{cells: csv.NewWriter(to), sheet: f == Sheet}
	if w.sheet {
		if _, err := io.WriteString(to, "\ufeff"); err != nil {
			return nil, err
		}
	}
	w.cells.UseCRLF = true // RFC 4180 §2
	err := w.cells.Write(columns)
	w.cells.Flush()
	return w, err
}

// Write writes sessions.
func (w *Writer) Write(views []facts.View) error {
	for _, v := range views {
		doc := Document(v)
		if w.lines != nil {
			if err := writeLine(w.lines, doc); err != nil {
				return fmt.Errorf("write session %s: %w", doc.ID, err)
			}
			continue
		}
		cells := doc.cells()
		for i, cell := range cells {
			if w.sheet && len(cell) >= roundedDigits && strings.Trim(cell, "0123456789") == "" {
				cells[i] = `="` + cell + `"`
			}
		}
		if err := w.cells.Write(cells); err != nil {
			return fmt.Errorf("write session %s: %w", doc.ID, err)
		}
	}
	if w.cells == nil {
		return nil
	}
	w.cells.Flush()
	return w.cells.Error()
}

// writeLine writes a document as one line of JSON. Characters that are not seen are escapes in it: a reader
// of JSON gets the same text, and a person who looks at the line, or a terminal, is not misled by them.
func writeLine(to io.Writer, doc Session) error {
	var line strings.Builder
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(doc); err != nil {
		return err
	}
	var out []byte
	for _, r := range line.String() {
		if r == '\n' || strconv.IsGraphic(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	_, err := to.Write(out)
	return err
}

// columns are the members of Session; for its callback there are its state, the end of its last attempt, and
// why it is waiting.
var columns = []string{
	"id", "test", "platform", "platform_user_id", "guild_id", "binding", "reached", "state", "step",
	"verified", "reason", "rule", "created_at", "expires_at", "completed_at", "delivery", "attempts",
	"last_class", "last_status", "reference", "locale", "tries", "last_detail", "tried_at",
	"next_attempt_at", "display_name", "group_name",
}

func (s Session) cells() []string {
	class, status, waiting := "", "", Waiting{}
	if n := len(s.Delivery.Attempts); n > 0 {
		last := s.Delivery.Attempts[n-1]
		class, status = string(last.Class), text(last.Status)
	}
	tries := ""
	if w := s.Delivery.Waiting; w != nil {
		class, tries, waiting = string(w.Class), strconv.Itoa(w.Tries), *w
		if w.Class != failure.Status { // what failed last got no status
			status = ""
		}
	}
	return []string{
		string(s.ID), strconv.FormatBool(s.Test), Defuse(s.Platform), Defuse(s.PlatformUserID),
		Defuse(s.GuildID), string(s.Binding), text(s.Reached), string(s.State), string(s.Step),
		text(s.Verified), string(s.Reason), string(s.Rule), s.CreatedAt, s.ExpiresAt, text(s.CompletedAt),
		string(s.Delivery.State), strconv.Itoa(len(s.Delivery.Attempts)), class, status,
		Defuse(s.Reference), s.Locale, tries, Defuse(waiting.Detail), waiting.TriedAt, waiting.NextAttemptAt,
		Defuse(s.DisplayName), Defuse(s.GroupName),
	}
}

// text writes a value that may be missing.
func text[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

// roundedDigits is from how many digits on spreadsheets do not show a number as it is written: from 12 on
// they write it with an exponent, and from 16 on they round it.
const roundedDigits = 12

const (
	// formulas are the characters with which a formula begins. Spreadsheets of East Asian languages read the
	// full-width forms too.
	formulas = "=+-@\t\r\n＝＋－＠"
	// ends are the characters that end a cell for some spreadsheet: where the comma is the decimal separator,
	// a semicolon separates cells.
	ends = ";\t\r\n\""
)

// Defuse returns a cell of which no spreadsheet treats anything as a formula: an apostrophe precedes what
// begins like one, at the cell's beginning and wherever another cell may begin. Users choose their names on a
// platform.
func Defuse(cell string) string {
	var out strings.Builder
	begins, written := true, 0
	for i, r := range cell {
		if begins && strings.ContainsRune(formulas, r) {
			out.WriteString(cell[written:i] + "'")
			written = i
		}
		begins = strings.ContainsRune(ends, r)
	}
	return out.String() + cell[written:]
}
