package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"verifyd/edge/api/words"
	"verifyd/edge/problem"
	"verifyd/edge/problem/fault"
	"verifyd/edge/web"
	"verifyd/sessions/proof"
	"verifyd/sessions/urlpolicy"
)

const (
	// MaxFieldBytes bounds platform, platform_user_id and guild_id, as UTF-8 after unescaping.
	MaxFieldBytes = 1024
)

// verification is the contract's verification input (contract §2.2), checked.
type verification struct {
	platform, platformUserID, guildID string
	callback                          urlpolicy.URL
	reference, locale                 string
	level                             proof.Level // as the request says; empty: it does not
	asked                             proof.Level // that counts
}

// readVerification reads and checks the body of POST /verify/init.
func (a *api) readVerification(r *http.Request) (verification, *problem.Problem) {
	body, p := readJSONBody(r)
	if p != nil {
		return verification{}, p
	}
	v, faults := decodeVerification(body, a.Callbacks)
	return v, invalid(&members{faults: faults})
}

func summary(faults []problem.Fault) string {
	first := faults[0]
	text := first.Detail
	if first.Field != "" {
		text = first.Field + ": " + text
	}
	if more := len(faults) - 1; more > 0 {
		return fmt.Sprintf("%s; and %d more, see errors.", text, more)
	}
	return text + "."
}

// readJSONBody reads a body that says it is plain JSON.
func readJSONBody(r *http.Request) ([]byte, *problem.Problem) {
	if r.ContentLength > web.MaxBodyBytes {
		return nil, tooLarge()
	}
	if p := checkMedia(r.Header); p != nil {
		return nil, p
	}
	body, err := readWhole(r) // bounded by the frame around every route
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &large):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &problem.Problem{
			Code:   problem.CodeRequestTimeout,
			Detail: "The body was too slow to arrive; send it at once with the header.",
		}
	default:
		return nil, &problem.Problem{Code: problem.CodeInvalidRequest,
			Detail: "The body ended before its announced length.",
			Faults: []problem.Fault{
				{Code: fault.Syntax, Detail: "the body ends before its announced length"},
			}}
	}
}

// readWhole reads a body that says how long it is into as much room.
func readWhole(r *http.Request) ([]byte, error) {
	if r.ContentLength <= 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, err
	}
	return body, nil
}

func tooLarge() *problem.Problem {
	return &problem.Problem{Code: problem.CodeBodyTooLarge,
		Detail: fmt.Sprintf("A body has at most %d bytes.", web.MaxBodyBytes)}
}

// checkMedia takes application/json, with no parameter but charset=utf-8, in no encoding but identity. RFC
// 8259 knows no other charset, and a body that has to be unpacked first would get around its size limit.
func checkMedia(h http.Header) *problem.Problem {
	for _, coding := range h.Values("Content-Encoding") {
		if !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			return &problem.Problem{
				Code:   problem.CodeUnsupportedMedia,
				Detail: "Content-Encoding must be absent; send the body as it is.",
			}
		}
	}
	types := h.Values("Content-Type")
	if len(types) == 1 {
		media, params, err := mime.ParseMediaType(types[0])
		charset, given := params["charset"]
		if err == nil && media == "application/json" &&
			(len(params) == 0 || len(params) == 1 && given && strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return &problem.Problem{
		Code:   problem.CodeUnsupportedMedia,
		Detail: "Content-Type must be application/json; the only parameter may be charset=utf-8.",
	}
}

// decodeVerification reads the verification input strictly: the grammar of RFC 8259 in UTF-8, no name twice
// in any object, names compared exactly, nothing behind the object. Members it does not know are ignored,
// since the contract may grow. It returns all faulty fields; where the text itself is not JSON, that one
// fault.
func decodeVerification(body []byte, callbacks Callbacks) (verification, []problem.Fault) {
	m, f := readMembers(body)
	if f != nil {
		return verification{}, []problem.Fault{*f}
	}
	v := verification{
		level:          m.level("binding"),
		platform:       m.text("platform", true),
		platformUserID: m.text("platform_user_id", true),
		guildID:        m.text("guild_id", false),
		callback:       m.url("callback_url", callbacks),
		reference:      m.checked("reference", words.CheckReference),
		locale:         m.checked("locale", words.CheckLocale),
	}
	return v, m.faults
}

// members holds the members of the body as they stand, and gathers what is wrong with them.
type members struct {
	values map[string]jsontext.Value
	faults []problem.Fault
}

// readMembers takes a text apart that is exactly one JSON object, or returns what is wrong with it. The text
// is read as a whole first: read member by member, one that ends within an array passes for a wrong type.
func readMembers(body []byte) (*members, *problem.Fault) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	value, err := dec.ReadValue()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &problem.Fault{Code: fault.Syntax,
			Detail: "the body is empty; it must be a JSON object"}
	case err != nil:
		return nil, syntaxFault(body, err)
	case value.Kind() != jsontext.KindBeginObject:
		return nil, &problem.Fault{
			Code:   fault.Type,
			Detail: "the body is JSON but not an object; it must start with { and end with }",
		}
	}
	m := &members{}
	if err := json.Unmarshal(value, &m.values); err != nil {
		return nil, syntaxFault(body, err)
	}
	end := dec.InputOffset()
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &problem.Fault{
			Code: fault.Trailing, Detail: fmt.Sprintf(
				"after the object, from byte %d on, nothing but white space may follow", end),
		}
	}
	return m, nil
}

func syntaxFault(body []byte, err error) *problem.Fault {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return &problem.Fault{Code: fault.Syntax, Detail: "the body is not JSON"}
	}
	f := &problem.Fault{Field: memberOf(s.JSONPointer)}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		f.Code, f.Detail = fault.Duplicate, "the name stands twice in one object; each may stand once"
	case onlyEncoding(body, s.ByteOffset):
		f.Code = fault.Encoding
		f.Detail = fmt.Sprintf("at or after byte %d is text that is not UTF-8, or half of a surrogate "+
			"pair (\\ud800 to \\udfff)", s.ByteOffset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Code, f.Detail = fault.Syntax, "the body ends in the middle of its JSON"
	default:
		f.Code, f.Detail = fault.Syntax,
			fmt.Sprintf("the body is not JSON (RFC 8259) at or after byte %d", s.ByteOffset)
	}
	return f
}

// onlyEncoding reports whether the fault at offset is one of encoding: a reader that overlooks those gets
// further.
func onlyEncoding(body []byte, offset int64) bool {
	_, err := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowInvalidUTF8(true)).ReadValue()
	var s *jsontext.SyntacticError
	return err == nil || errors.As(err, &s) && s.ByteOffset > offset
}

// maxShownName bounds how much of a client's own member name comes back to it.
const maxShownName = 64

// memberOf returns the member of the body that a pointer leads into; empty for the body itself, and for names
// that are too long to be anybody's field.
func memberOf(p jsontext.Pointer) string {
	for name := range p.Tokens() {
		if len(name) <= maxShownName {
			return name
		}
		break
	}
	return ""
}

func (m *members) faultf(field, code, format string, args ...any) {
	m.faults = append(m.faults, problem.Fault{Field: field, Code: code, Detail: fmt.Sprintf(format, args...)})
}

// str returns a member that is a string; ok is false where it is missing or of another type, which is a fault
// already.
func (m *members) str(name string, required bool) (s string, ok bool) {
	value, given := m.values[name]
	if !given {
		if required {
			m.faultf(name, fault.Missing, "the field is required%s", m.lookalike(name))
		}
		return "", false
	}
	if value.Kind() != jsontext.KindString {
		m.faultf(name, fault.Type, "the field is %s; it must be a string", kindWord(value.Kind()))
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		m.faultf(name, fault.Syntax, "the field is not a JSON string")
		return "", false
	}
	return string(text), true
}

// text reads one of the integrator's arbitrary strings. It is taken as it is: any valid Unicode, control
// characters included.
func (m *members) text(name string, required bool) string {
	s, ok := m.str(name, required)
	switch {
	case !ok:
	case len(s) > MaxFieldBytes:
		m.faultf(name, fault.Length, "the field has %d bytes; it may have up to %d as UTF-8", len(s),
			MaxFieldBytes)
	case s == "" && required:
		m.faultf(name, fault.Length, "the field is empty; it must have 1 to %d bytes", MaxFieldBytes)
	}
	return s
}

// level reads the level that a session asks for.
func (m *members) level(name string) proof.Level {
	s, ok := m.str(name, false)
	if ok && !proof.Level(s).Known() {
		m.faultf(name, fault.Value, "the field is %.40q; it must be one of %s", s, join(proof.Levels))
	}
	return proof.Level(s)
}

// checked reads an optional string that is judged elsewhere.
func (m *members) checked(name string, check func(string) error) string {
	s, ok := m.str(name, false)
	if !ok {
		return ""
	}
	if err := check(s); err != nil {
		m.faultf(name, fault.Value, "%s", err)
	}
	return s
}

func (m *members) url(name string, callbacks Callbacks) urlpolicy.URL {
	s, ok := m.str(name, true)
	if !ok {
		return urlpolicy.URL{}
	}
	u, err := callbacks.Parse(s)
	var f *urlpolicy.Fault
	switch {
	case errors.As(err, &f):
		m.faultf(name, f.Code, "%s", f.Detail)
	case err != nil:
		m.faultf(name, urlpolicy.CodeSyntax, "the field is not an absolute https URL")
	}
	return u
}

// lookalike helps whoever wrote a name with other letter case.
func (m *members) lookalike(name string) string {
	for other := range m.values {
		if strings.EqualFold(other, name) {
			return "; names are compared exactly, in lower case"
		}
	}
	return ""
}

func kindWord(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginArray:
		return "an array"
	default:
		return "an object"
	}
}
