package web

import (
	"fmt"
	"net/http"
	"time"
)

// pathLogLevel is the operators' route to the log's level.
const pathLogLevel = "/debug/log-level"

// maxLogLevelSpan bounds a temporary change: a longer one is a setting.
const maxLogLevelSpan = 24 * time.Hour

// Levels is the level of the process's log; a *logging.Logger.
type Levels interface {
	// Level returns the level, and until when it holds; zero: permanently.
	Level() (level string, until time.Time)
	// SetLevel changes it, temporarily if the duration is above 0. The error names what is valid.
	SetLevel(level string, during time.Duration) error
}

// logLevelDoc is the answer of the route.
type logLevelDoc struct {
	Level string `json:"level"`
	Until string `json:"until,omitempty"` // when it goes back to what it was
}

// GET /debug/log-level reports the level of the process's log. PUT /debug/log-level?level=debug&for=10m
// changes it, temporarily if for is given; a 400 names what is valid. PUT, since no page of another site can
// send one.
func logLevel(l Levels) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			if err := setLogLevel(l, r.URL.Query().Get("level"), r.URL.Query().Get("for")); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		level, until := l.Level()
		doc := logLevelDoc{Level: level}
		if !until.IsZero() {
			doc.Until = Timestamp(until)
		}
		WriteJSON(w, http.StatusOK, "application/json", doc)
	}
}

func setLogLevel(l Levels, level, during string) error {
	var d time.Duration
	if during != "" {
		var err error
		if d, err = time.ParseDuration(during); err != nil || d <= 0 || d > maxLogLevelSpan {
			return fmt.Errorf("for: %q is not a while of at most %s; for example 10m", during,
				maxLogLevelSpan)
		}
	}
	return l.SetLevel(level, d)
}
