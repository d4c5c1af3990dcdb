package site

import (
	"html/template"
	"strings"
	"time"
)

// The forms of instants. Without a script they are in UTC; the script, which has the same forms, converts
// them to the browser's time zone, and shows UTC in a tooltip.
const (
	formDate  = "2 Jan 2006"
	formDay   = "2 January 2006"
	formWhen  = "2 Jan 2006, 15:04 UTC"
	formShort = "2 Jan, 15:04:05 UTC"
	formTime  = "15:04:05 UTC"
	formClock = "15:04:05.000" // below a heading that says the day and the zone
)

// times are the templates' functions for instants.
var times = template.FuncMap{
	"date":  func(t time.Time) template.HTML { return stamp("date", formDate, t) },
	"day":   func(t time.Time) string { return t.UTC().Format(formDay) }, // in UTC, as the text after it says
	"when":  When,
	"short": func(t time.Time) template.HTML { return stamp("short", formShort, t) },
	"clock": func(t time.Time) template.HTML { return stamp("clock", formClock, t) },
}

// When formats an instant to the minute.
func When(t time.Time) template.HTML { return stamp("when", formWhen, t) }

// The marks around an instant in a text, until Words replaces them: characters that no legible text has.
const instantBegins, instantEnds = "\x02", "\x03"

// Instant marks an instant in a text that goes through Words; for timeline.Report.
func Instant(t time.Time) string {
	return instantBegins + t.UTC().Format(time.RFC3339Nano) + instantEnds
}

// Words escapes a text, and formats the instants that are marked in it.
func Words(text string) template.HTML {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, instantBegins)
		b.WriteString(template.HTMLEscapeString(before))
		if !found {
			return template.HTML(b.String()) //nolint:gosec // escaped
		}
		marked, after, _ := strings.Cut(rest, instantEnds)
		if t, err := time.Parse(time.RFC3339Nano, marked); err == nil {
			b.WriteString(string(stamp("time", formTime, t)))
		} else { // nobody's mark
			b.WriteString(template.HTMLEscapeString(marked))
		}
		text = after
	}
}

// stamp formats an instant; no part of it comes from users.
func stamp(name, form string, t time.Time) template.HTML {
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format("2006-01-02T15:04:05.000Z07:00") + //nolint:gosec // digits
		`" data-form="` + name + `">` + t.Format(form) + `</time>`)
}
