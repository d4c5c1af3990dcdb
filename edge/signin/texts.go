package signin

import (
	"embed"
	"errors"
	"fmt"
	"html/template"
	"strings"

	"go.yaml.in/yaml/v3"

	"verifyd/edge/page"
)

//go:embed texts/en.yaml
var textFiles embed.FS

// texts are the messages of one language, by key.
type texts map[string]message

// message is a text with places for values, {name}, and stress, *so*. Values are drawn by page.Typed.
type message []part

type part struct {
	kind partKind
	text string // the literal, or the value's name
}

type partKind int

const (
	partLiteral partKind = iota
	partValue
	partStress // begins or ends it
)

// loadTexts reads a language's file. Errors name the key.
func loadTexts(file string) (texts, error) {
	data, err := textFiles.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	var raw map[string]string
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	ts := make(texts, len(raw))
	for key, s := range raw {
		m, err := parseMessage(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("read %s: %s: %w", file, key, err)
		}
		ts[key] = m
	}
	return ts, nil
}

func parseMessage(s string) (message, error) {
	if s == "" {
		return nil, errors.New("an empty text")
	}
	var m message
	stress := 0
	for s != "" {
		at := strings.IndexAny(s, "{}*")
		if at != 0 {
			if at < 0 {
				at = len(s)
			}
			m, s = append(m, part{partLiteral, s[:at]}), s[at:]
			continue
		}
		if s[0] == '*' {
			stress++
			m, s = append(m, part{partStress, ""}), s[1:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if s[0] == '}' || end < 2 {
			return nil, errors.New("a brace that is not part of a {name}")
		}
		m, s = append(m, part{partValue, s[1:end]}), s[end+1:]
	}
	if stress%2 != 0 {
		return nil, errors.New("a * without its partner")
	}
	return m, nil
}

// html draws the message. A value that is missing is an error: a sentence with a hole misleads.
func (m message) html(values map[string]string) (template.HTML, error) {
	var b strings.Builder
	stress := false
	for _, p := range m {
		switch p.kind {
		case partLiteral:
			b.WriteString(template.HTMLEscapeString(p.text))
		case partStress:
			stress = !stress
			b.WriteString(map[bool]string{true: "<strong>", false: "</strong>"}[stress])
		case partValue:
			v, ok := values[p.text]
			if !ok {
				return "", fmt.Errorf("no value for {%s}", p.text)
			}
			b.WriteString(string(page.Typed(v)))
		}
	}
	return template.HTML(b.String()), nil //nolint:gosec // every piece is escaped above
}

// plain gives a message that has neither values nor stress, for a page's title and for link previews.
func (m message) plain() (string, error) {
	if len(m) != 1 || m[0].kind != partLiteral {
		return "", errors.New("a title holds neither values nor stress")
	}
	return m[0].text, nil
}
