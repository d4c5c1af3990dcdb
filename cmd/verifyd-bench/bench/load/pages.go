package load

import (
	"context"
	"fmt"
	"net/http"
)

// StartSessions starts n sessions with the same request, many at once, and returns their tokens.
func StartSessions(ctx context.Context, clients, n int, address string, request []byte) ([]string, error) {
	conns := make(chan *Conn, clients)
	for range clients {
		conns <- NewConn(address)
	}
	defer func() {
		for range clients {
			(<-conns).Close()
		}
	}()
	tokens := make([]string, n)
	err := InParallel(ctx, clients, n, func(ctx context.Context, i int) (err error) {
		c := <-conns
		defer func() { conns <- c }()
		tokens[i], err = c.StartSession(ctx, request)
		return err
	})
	return tokens, err
}

// Pages is a user who opens the pages of sessions, each once.
type Pages struct {
	Steps []Step // one, the user's
	conn  *Conn
}

// NewPages returns a user of a service with the tokens of sessions.
func NewPages(address string, tokens []string) *Pages {
	p := &Pages{conn: NewConn(address)}
	p.Steps = []Step{func(ctx context.Context) error {
		if len(tokens) == 0 {
			return ErrNoMore
		}
		a, err := p.conn.Do(ctx, Request(http.MethodGet, address, "/?session="+tokens[0], "", ""))
		tokens = tokens[1:]
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("open the page: %d", a.Status)
		}
		return err
	}}
	return p
}

// Close ends the user's connection.
func (p *Pages) Close() { p.conn.Close() }
