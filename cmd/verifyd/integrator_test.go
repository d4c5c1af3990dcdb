package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/client"
)

// newClient returns the integrators' Go client for a running service.
func (r *rig) newClient(t *testing.T, key string) *client.Client {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	return must[*client.Client](t)(client.New(r.Base, key, client.WithHTTPClient(h)))
}

// The Go client speaks with the real service: it starts, reads, waits, cancels, and gets each refusal with
// its code; and its receiver accepts the real callback.
func TestGoClient(t *testing.T) {
	t.Parallel()
	r := boot(t)
	c := r.newClient(t, r.apiKey)
	v := client.Verification{
		Platform: "chat", PlatformUserID: "sailor \u2028\"🌊", GuildID: "118",
		CallbackURL: r.inbox.CallbackURL(),
	}

	results := make(chan client.Result, 1)
	desk := must[*client.Receiver](t)(client.NewReceiver([]string{r.secret},
		func(_ context.Context, got client.Result) error {
			results <- got
			return nil
		}))
	// The same callback is verified with only the public key, as the service provides it.
	keys := must[[]string](t)(c.SigningKeys(t.Context()))
	public := must[*client.Verifier](t)(client.NewVerifier(keys...))
	r.inbox.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body := must[[]byte](t)(io.ReadAll(q.Body))
		if _, err := public.Verify(q.Header, body, time.Now()); err != nil {
			t.Errorf("by the public key: %v", err)
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		desk.ServeHTTP(w, q)
	})

	s := must[client.Started](t)(c.Start(t.Context(), v))
	if left := time.Until(s.ExpiresAt); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("it expires in %s", left)
	}
	b := demo.NewBrowser()
	p := atProvider(t, b, s.VerifyURL)
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), p, "sign-in")), http.StatusOK, "You are verified")
	got := <-results
	if !got.Verified || got.PlatformUserID != v.PlatformUserID || got.GuildID != "118" ||
		got.Session != s.ID() || got.Test {
		t.Errorf("the receiver took %+v", got)
	}
	read := must[client.Session](t)(c.Wait(t.Context(), s.Session))
	if read.State != client.Verified || !*read.Verified || read.ID != s.ID() ||
		read.PlatformUserID != v.PlatformUserID || read.CompletedAt == nil {
		t.Errorf("read %+v", read)
	}
	r.api().until(t, s.Session, "delivered")
	if read = must[client.Session](t)(c.Session(t.Context(), s.ID())); len(read.Delivery.Attempts) != 1 ||
		read.Delivery.Attempts[0].Status != http.StatusOK {
		t.Errorf("its delivery is %+v", read.Delivery)
	}

	other := must[client.Started](t)(c.Start(t.Context(), v))
	for range 2 {
		if read = must[client.Session](t)(c.Cancel(t.Context(), other.ID())); read.State != client.Canceled ||
			read.Verified != nil {
			t.Errorf("canceled, it is %+v", read)
		}
	}
	_, completed := c.Cancel(t.Context(), s.ID())
	_, nothing := c.Resend(t.Context(), other.ID())
	_, missing := c.Session(t.Context(), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	_, wrongKey := r.newClient(t, "vfy_0").Session(t.Context(), s.ID())
	_, invalid := c.Start(t.Context(), client.Verification{
		Platform: "chat", PlatformUserID: "u", CallbackURL: "http://bot.example.com",
	})
	for _, refused := range []struct {
		err    error
		status int
		code   client.Code
	}{
		{completed, 409, client.CodeSessionCompleted}, {nothing, 409, client.CodeNothingToSend},
		{missing, 404, client.CodeSessionNotFound},
		{wrongKey, 401, client.CodeKeyInvalid}, {invalid, 400, client.CodeInvalidRequest},
	} {
		e, ok := errors.AsType[*client.Error](refused.err)
		if !ok || e.Status != refused.status || e.Code != refused.code || e.RequestID == "" ||
			e.Detail == "" {
			t.Errorf("got %v, want %d %s", refused.err, refused.status, refused.code)
		}
	}
	if e, ok := errors.AsType[*client.Error](invalid); !ok || len(e.Fields) != 1 ||
		e.Fields[0].Name != "callback_url" {
		t.Errorf("the faulty field is not named: %v", invalid)
	}
}
