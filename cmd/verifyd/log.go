package main

import (
	"fmt"
	"io"
	"os"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/journal"
	"verifyd/edge"
)

// journal makes the log of the process, on standard error: standard output is for results.
func (s logSettings) journal(w io.Writer) (*journal.Journal, error) {
	var f faults
	level, err := journal.ParseLevel(s.LogLevel)
	if err != nil {
		f.add("log-level", fmt.Sprintf("%q is not a level", s.LogLevel), "use trace, debug, info, warn or error")
	}
	switch s.LogFormat {
	case "auto":
		if isTerminal(w) {
			w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000"}
		}
	case "console":
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000", NoColor: !isTerminal(w)}
	case "json":
	default:
		f.add("log-format", fmt.Sprintf("%q is not a format", s.LogFormat), "use auto, console or json")
	}
	return journal.New(w, level, edge.LogMessage), f.err()
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
