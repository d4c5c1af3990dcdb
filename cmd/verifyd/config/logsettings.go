package config

import (
	"fmt"
	"io"
	"os"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/logging"
	"verifyd/edge/web"
)

// Logger returns the log of the process, on standard error: standard output is for results. Its Queue is to
// be flushed at the end.
func (s LogSettings) Logger(w io.Writer) (*logging.Logger, error) {
	var f Faults
	level, err := logging.ParseLevel(s.LogLevel)
	if err != nil {
		f.Add("log-level", fmt.Sprintf("%q is not a level", s.LogLevel),
			"use trace, debug, info, warn or error")
	}
	queue := logging.NewQueue(w)
	var lines io.Writer = queue
	switch s.LogFormat {
	case "auto":
		if IsTerminal(w) {
			lines = zerolog.ConsoleWriter{Out: queue, TimeFormat: "15:04:05.000"}
		}
	case "console":
		lines = zerolog.ConsoleWriter{Out: queue, TimeFormat: "15:04:05.000", NoColor: !IsTerminal(w)}
	case "json":
	default:
		f.Add("log-format", fmt.Sprintf("%q is not a format", s.LogFormat), "use auto, console or json")
	}
	j := logging.New(lines, level, web.LogMessage)
	j.Queue = queue
	return j, f.Err()
}

// IsTerminal reports whether a person reads what is written to w.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
