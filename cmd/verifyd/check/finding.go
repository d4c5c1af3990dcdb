package check

import (
	"fmt"
	"io"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/table"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning"
	LevelError   Level = "error"
)

// Finding is one line of a check.
type Finding struct {
	Level  Level  `json:"level"`
	Area   string `json:"area"`
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // what to do; empty if all is well
}

// Survey collects findings.
type Survey struct {
	Say func(string) string // rewords the findings that are added from then on; nil: they stay as they are

	findings []Finding
}

func (s *Survey) add(l Level, area, do, detail string) {
	if s.Say != nil {
		detail, do = s.Say(detail), s.Say(do)
	}
	s.findings = append(s.findings, Finding{l, area, detail, do})
}

func (s *Survey) ok(area, format string, args ...any) {
	s.add(LevelOK, area, "", fmt.Sprintf(format, args...))
}

// Warn adds a finding that a person should look at, with what to do.
func (s *Survey) Warn(area, do, format string, args ...any) {
	s.add(LevelWarning, area, do, fmt.Sprintf(format, args...))
}

func (s *Survey) err(area, do, format string, args ...any) {
	s.add(LevelError, area, do, fmt.Sprintf(format, args...))
}

// Worst returns the level of the worst finding.
func (s *Survey) Worst() Level {
	worst := LevelOK
	for _, f := range s.findings {
		if f.Level == LevelError || f.Level == LevelWarning && worst == LevelOK {
			worst = f.Level
		}
	}
	return worst
}

// Print writes the findings, for people or as one JSON document.
func (s *Survey) Print(out io.Writer, asJSON bool) error {
	if asJSON {
		return table.PrintJSON(out, struct {
			Worst    Level     `json:"worst"`
			Findings []Finding `json:"findings"`
		}{s.Worst(), s.findings})
	}
	for _, f := range s.findings {
		if _, err := fmt.Fprintf(out, "%-8s %-14s %s\n", f.Level, f.Area, f.Detail); err != nil {
			return err
		}
		if f.Do != "" {
			_, _ = fmt.Fprintf(out, "%-8s %-14s → %s\n", "", "", f.Do)
		}
	}
	return nil
}

// refusal returns what serve refuses to start with: every error among the findings.
func (s *Survey) refusal() error {
	var f config.Faults
	for _, found := range s.findings {
		if found.Level == LevelError {
			f = append(f, fmt.Errorf("%s: %s; %s", found.Area, found.Detail, found.Do))
		}
	}
	if len(f) == 0 {
		return nil
	}
	return config.Usage(f.Err())
}
