package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/sessions/proof"
	"verifyd/sessions/urlpolicy"
)

const (
	// MaxFieldBytes bounds platform, platform_user_id, guild_id and the names, as UTF-8 after unescaping.
	MaxFieldBytes = 1024
)

// verification is the contract's verification input (contract §2.2), checked.
type verification struct {
	platform, platformUserID, guildID string
	callback                          urlpolicy.URL
	reference, locale                 string
	displayName, groupName            string
	level                             proof.Level // as the request sets it; empty: it does not
	asked                             proof.Level // that counts
}

// readVerification reads and checks the body of POST /verify/init.
func (a *api) readVerification(r *http.Request) (verification, *problem.Problem) {
	body, p := request.Body(r)
	if p != nil {
		return verification{}, p
	}
	v, faults := decodeVerification(body, a.Callbacks)
	return v, request.Invalid(faults...)
}

// decodeVerification reads the verification input strictly: the grammar of RFC 8259 in UTF-8, no name twice
// in any object, names compared exactly, nothing after the object. Members it does not know are ignored,
// since the contract may grow, but for one that is nearly "binding": misspelt, it would weaken the proof. It
// returns all faulty fields; if the text itself is not JSON, that one fault.
func decodeVerification(body []byte, callbacks Callbacks) (verification, []problem.Fault) {
	read, f := request.ReadMembers(body)
	if f != nil {
		return verification{}, []problem.Fault{*f}
	}
	m := members{read}
	v := verification{
		level:          m.level("binding"),
		platform:       m.text("platform", true),
		platformUserID: m.text("platform_user_id", true),
		guildID:        m.text("guild_id", false),
		callback:       m.url("callback_url", callbacks),
		reference:      m.checked("reference", checkReference),
		locale:         m.checked("locale", checkLocale),
		displayName:    m.name("display_name"),
		groupName:      m.name("group_name"),
	}
	m.Misspelt("binding")
	return v, m.Faults
}

// members are those of the integrators' bodies.
type members struct{ *request.Members }

// text reads one of the integrator's arbitrary strings. It is accepted as it is: any valid Unicode, control
// characters included.
func (m members) text(name string, required bool) string {
	s, ok := m.Text(name, required)
	switch {
	case !ok:
	case len(s) > MaxFieldBytes:
		m.Faultf(name, problem.FaultLength, "the field has %d bytes; it may have up to %d as UTF-8", len(s),
			MaxFieldBytes)
	case s == "" && required:
		m.Faultf(name, problem.FaultLength, "the field is empty; it must have 1 to %d bytes", MaxFieldBytes)
	}
	return s
}

// name reads how people know somebody or something. White space alone is no name.
func (m members) name(name string) string {
	s := m.text(name, false)
	if strings.TrimSpace(s) == "" {
		return ""
	}
	return s
}

// level reads the level that a session asks for.
func (m members) level(name string) proof.Level {
	s, ok := m.Text(name, false)
	if ok && !proof.Level(s).Known() {
		m.Faultf(name, problem.FaultValue, "the field is %.40q; it must be one of %s", s, join(proof.Levels))
	}
	return proof.Level(s)
}

// checked reads an optional string that is judged elsewhere.
func (m members) checked(name string, check func(string) error) string {
	s, ok := m.Text(name, false)
	if !ok {
		return ""
	}
	if err := check(s); err != nil {
		m.Faultf(name, problem.FaultValue, "%s", err)
	}
	return s
}

func (m members) url(name string, callbacks Callbacks) urlpolicy.URL {
	s, ok := m.Text(name, true)
	if !ok {
		return urlpolicy.URL{}
	}
	u, err := callbacks.Parse(s)
	var f *urlpolicy.Fault
	switch {
	case errors.As(err, &f):
		m.Faultf(name, f.Code, "%s", f.Detail)
	case err != nil:
		m.Faultf(name, urlpolicy.CodeSyntax, "the field is not an absolute https URL")
	}
	return u
}

const (
	// maxReferenceBytes has room for an id with a prefix, and none for a document.
	maxReferenceBytes = 128
	// maxLocaleBytes is the length that RFC 5646 §4.4.1 asks implementations to have room for.
	maxLocaleBytes = 35
)

// checkReference returns what is wrong with a reference; nil: nothing. Empty is right: there is none.
func checkReference(s string) error {
	if len(s) > maxReferenceBytes {
		return fmt.Errorf("the field has %d bytes; it may have up to %d as UTF-8", len(s), maxReferenceBytes)
	}
	for at, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("byte %d begins U+%04X, which is not printable; it may hold letters, marks, "+
				"digits, punctuation, symbols and plain spaces", at, r)
		}
	}
	return nil
}

// checkLocale returns what is wrong with a locale; nil: nothing. A tag of an unknown language is valid as
// long as it is well-formed (RFC 5646 §2.2.9).
func checkLocale(s string) error {
	_, err := language.Parse(s)
	var unknown language.ValueError // of a subtag, which is well-formed
	switch {
	case len(s) > maxLocaleBytes:
		return fmt.Errorf("the field has %d bytes; a language tag has up to %d", len(s), maxLocaleBytes)
	case s == "":
		return errors.New("the field is empty; leave it out, or write a BCP 47 language tag such as " +
			"de or pt-BR")
	case strings.Contains(s, "_"): // which Parse takes for a hyphen
		return fmt.Errorf("%q is not a BCP 47 language tag: it has hyphens where this has "+
			"underscores, as in pt-BR", s)
	case err != nil && !errors.As(err, &unknown):
		return fmt.Errorf("%q is not a BCP 47 language tag, such as de or pt-BR", s)
	}
	return nil
}
