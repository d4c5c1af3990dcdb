package integrator

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"verifyd/edge/account"
	"verifyd/edge/dashboard/callbacks"
	"verifyd/sessions/facts"
)

// curl writes a session's callback as a command line, signed as of now; empty if it has none.
func (h sessionPages) curl(s facts.View, a account.Account) string {
	if s.Delivery.State == facts.DeliveryNone || h.Callbacks == nil {
		return ""
	}
	raw, err := h.Callbacks.Draft(callbacks.Callback{
		URL: s.CallbackURL, ID: string(s.ID), PlatformUserID: s.PlatformUserID, GuildID: s.GuildID,
		Verified: s.Verified(), Test: s.Test,
		Secrets: h.Signing.Secrets(a, h.Now()), At: h.Now(),
	})
	if err != nil {
		return ""
	}
	return curlOf(s.CallbackURL, raw)
}

// curlOf writes a request as a command line for a POSIX shell.
func curlOf(to, raw string) string {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	lines := []string{"curl -ig " + quote(to)} // -g: no patterns in brackets and braces of a URL
	for name, values := range r.Header {
		if name == "Content-Length" {
			continue // curl counts by itself
		}
		for _, value := range values {
			lines = append(lines, "-H "+quote(strings.ToLower(name)+": "+value))
		}
	}
	slices.Sort(lines[1:])
	return strings.Join(append(lines, "--data-binary "+quote(string(body))), " \\\n  ")
}

// quote quotes any text as one word of a POSIX shell. Invisible characters, such as those that change the
// direction of text, are written as octal escapes of printf, so that a terminal shows exactly what the shell
// reads.
func quote(s string) string {
	unseen := func(r rune) bool { return !strconv.IsGraphic(r) || r == utf8.RuneError }
	if !strings.ContainsFunc(s, unseen) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case unseen(r), strings.ContainsRune(`'"\!$`+"`",
			r): // inside double quotes, a shell looks for the last four
			for _, octet := range []byte(string(r)) {
				fmt.Fprintf(&b, `\%03o`, octet)
			}
		case r == '%':
			b.WriteString("%%")
		default:
			b.WriteRune(r)
		}
	}
	// it removes line ends at the end, where a body has a brace
	return `"$(printf '` + b.String() + `')"`
}
