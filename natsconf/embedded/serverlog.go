package embedded

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// serverLog passes the embedded server's log on to ours. Its fatal lines end a start, never the process.
type serverLog struct {
	log zerolog.Logger
	// called with each error, and each warning, before it is logged
	onError, onWarning func(format string, args []any)

	mu   sync.Mutex
	last string
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l *serverLog) Debugf(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }
func (l *serverLog) Tracef(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }

func (l *serverLog) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, plaintextWarning) {
		return // our credential is random, new at each start, and in a file that only its owner reads
	}
	l.onWarning(format, v)
	l.log.Warn().Msgf(format, v...)
}

// plaintextWarning begins the server's warning about every password that is not hashed.
const plaintextWarning = "Plaintext passwords detected"

func (l *serverLog) Errorf(format string, v ...any) {
	l.onError(format, v)
	l.keep(format, v...)
	l.log.Error().Msgf(format, v...)
}

func (l *serverLog) Fatalf(format string, v ...any) {
	l.keep(format, v...)
	l.log.Error().Msgf(format, v...)
}

func (l *serverLog) keep(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Sprintf(format, v...)
}

// reason returns the last error the server logged, for the error of a failed start.
func (l *serverLog) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return errors.New("not ready in time")
	}
	return errors.New(l.last)
}
