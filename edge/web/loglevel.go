package web

import (
	"fmt"
	"net/http"
	"time"
)

// pathLogLevel is the operators' route to the log's level.
const pathLogLevel = "/debug/log-level"

// maxLogLevelSpan bounds a change for a while: what is to last longer is a setting.
const maxLogLevelSpan = 24 * time.Hour

// Levels is the level of the process's log; a *logging.Logger.
type Levels interface {
	// Level returns the level, and until when it holds; zero: for good.
	Level() (level string, until time.Time)
	// SetLevel changes it, for a while where that is above 0. The error says what would be right.
	SetLevel(level string, during time.Duration) error
}

// logLevelDoc is the answer of the route.
type logLevelDoc struct {
	Level string `json:"level"`
	Until string `json:"until,omitempty"` // when it goes back to what it was
}

// GET /debug/log-level reports the level of the process's log. PUT /debug/log-level?level=debug&for=10m
// changes it, for a while where for is given; 400 says what would be right. PUT, since no page of another
// site can send one.
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
