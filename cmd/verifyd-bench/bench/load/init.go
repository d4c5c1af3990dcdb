package load

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
)

// The parameters of every session.
const (
	Platform       = "discord"
	PlatformUserID = "sailor_42"
	GuildID        = "118203948571029384"
)

const (
	// InitPath is the path that starts sessions.
	InitPath = "/verify/init"
	// minInitBytes is the minimum size of an answer to init: a token twice, and an instant.
	minInitBytes = 100
)

// InitRequest returns POST /verify/init with a callback to the URL. authorization is a whole header line, or
// nothing.
func InitRequest(address, authorization, callbackURL string) []byte {
	return Request(http.MethodPost, address, InitPath, authorization+"Content-Type: application/json\r\n",
		initBody(callbackURL))
}

func initBody(callbackURL string) string {
	return fmt.Sprintf(`{"platform":%q,"platform_user_id":%q,"guild_id":%q,"callback_url":%q}`, Platform,
		PlatformUserID, GuildID, callbackURL)
}

// postInit sends a request of InitRequest, and returns an error for every answer that is no session.
func (c *Conn) postInit(ctx context.Context, request []byte) (Answer, error) {
	a, err := c.Do(ctx, request)
	if err == nil && (a.Status != http.StatusOK || len(a.Body) < minInitBytes) {
		err = fmt.Errorf("%d %s", a.Status, a.Body)
	}
	return a, err
}

// StartSession sends a request of InitRequest and returns the session's token.
func (c *Conn) StartSession(ctx context.Context, request []byte) (token string, err error) {
	a, err := c.postInit(ctx, request)
	if err != nil {
		return "", fmt.Errorf("start a session: %w", err)
	}
	return tokenOf(a.Body), nil
}

// tokenOf returns the session token in an answer to init: its characters need no unescaping.
func tokenOf(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"session":"`))
	token, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(token)
}

// WebhookID returns the webhook-id of a session's callback.
func WebhookID(token string) string { return callback.ID(sessions.Token(token).ID(), false) }

// Inits are clients that start sessions with the same request again and again.
type Inits struct {
	Steps []Step // of each client
	conns []*Conn
}

// NewInits returns clients of an address. They connect with their first request.
func NewInits(clients int, address string, request []byte) *Inits {
	l := &Inits{}
	for range clients {
		c := NewConn(address)
		l.conns = append(l.conns, c)
		l.Steps = append(l.Steps, func(ctx context.Context) error {
			_, err := c.postInit(ctx, request)
			return err
		})
	}
	return l
}

// Close ends the connections.
func (l *Inits) Close() {
	for _, c := range l.conns {
		c.Close()
	}
}
