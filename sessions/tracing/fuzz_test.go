package tracing_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"verifyd/sessions/tracing"
)

// The grammar of W3C Trace Context, §3.2.2, of version 00 and of versions to come: those may continue after a
// hyphen, ff is none, and neither id is all zeros.
var traceparent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

func isTraceparent(s string) bool {
	m := traceparent.FindStringSubmatch(s)
	return m != nil && m[1] != "ff" && (m[1] != "00" || m[5] == "") &&
		strings.Trim(m[2], "0") != "" && strings.Trim(m[3], "0") != ""
}

// What follows the grammar may be read; what does not is no parent. What is read is written by the rules of
// version 00, and read again the same.
func FuzzTraceparent(f *testing.F) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, s := range []string{
		good, good + "-x", "01" + good[2:] + "-x", "ff" + good[2:], strings.ToUpper(good), " " + good,
		good + "\n",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-00",
		good[:len(good)-1], strings.Replace(good, "-", "--", 1), good[:len(good)-2] + "ff", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := trace.SpanContextFromContext(tracing.WithParent(context.Background(), s))
		if !c.IsValid() {
			if strings.HasPrefix(s, "00-") && isTraceparent(s) && strings.HasSuffix(s, "-01") {
				t.Fatalf("%q is refused", s)
			}
			return
		}
		if !isTraceparent(s) {
			t.Fatalf("%q is read as %+v", s, c)
		}
		if c.TraceID().String() != s[3:35] || c.SpanID().String() != s[36:52] ||
			c.IsSampled() != strings.ContainsAny(s[54:55], "13579bdf") {
			t.Fatalf("%q is read as %s, %s, %s", s, c.TraceID(), c.SpanID(), c.TraceFlags())
		}
		written := tracing.Parent(trace.ContextWithSpanContext(context.Background(), c))
		again := trace.SpanContextFromContext(tracing.WithParent(context.Background(), written))
		if !isTraceparent(written) || !strings.HasPrefix(written, "00-") || again.TraceID() != c.TraceID() ||
			again.SpanID() != c.SpanID() || again.IsSampled() != c.IsSampled() {
			t.Fatalf("%q is written as %q", s, written)
		}
	})
}
