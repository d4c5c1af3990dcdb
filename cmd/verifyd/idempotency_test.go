package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
)

// tryKeyed starts a session under an idempotency key; status is 0 if no answer came.
func (a api) tryKeyed(ctx context.Context, key, callback string) (status int, s demo.Started) {
	body := fmt.Sprintf(`{"platform":"p","platform_user_id":"u","callback_url":%q}`, callback)
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/verify/init", strings.NewReader(body))
	if err != nil {
		return 0, s
	}
	q.Header.Set("Authorization", "Bearer "+a.key)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Idempotency-Key", key)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	response, err := client.Do(q)
	if err != nil {
		return 0, s
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode == http.StatusOK && json.Unmarshal(answer, &s) != nil {
		return 0, s
	}
	return response.StatusCode, s
}

// Wherever the process dies during a start under an idempotency key, repeats end in one session, and in no
// other. From the reservation on, its unit is counted once.
func TestKillWithinAKeyedStart(t *testing.T) {
	skipKills(t)
	t.Parallel()
	for _, point := range []string{
		crashpoint.BeforeReservation, crashpoint.AfterReservation, crashpoint.BeforeCount,
		crashpoint.AfterCount, crashpoint.BeforeCreate, crashpoint.AfterCreate,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			a := api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}
			c.env = append(c.env, fmt.Sprintf("%s=%s:1", crashVariable, point))
			c.start(t)
			if status, _ := a.tryKeyed(t.Context(), "order-1", c.inbox.CallbackURL()); status != 0 {
				t.Fatalf("answered %d before %s", status, point)
			}
			_ = c.end(t)
			c.env = c.env[:len(c.env)-1]
			c.start(t)
			ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
			defer cancel()
			first := a.keyedUntil(ctx, t, c)
			if again := a.keyedUntil(ctx, t, c); again != first {
				t.Errorf("repeats got %+v and %+v", first, again)
			}
			_, _, body := a.call(t, http.MethodGet, "/sessions", "")
			var list struct{ Sessions []struct{ ID string } }
			if err := json.Unmarshal(body, &list); err != nil || len(list.Sessions) != 1 {
				t.Errorf("one key led to these sessions: %s", body)
			}
			want := 1
			if point == crashpoint.AfterCount || point == crashpoint.BeforeReservation {
				want = 2 // nothing tells of the unit that the dead process had counted
			}
			var usage struct{ Used int }
			if _, _, body := a.call(t, http.MethodGet, "/usage", ""); json.Unmarshal(body, &usage) != nil ||
				usage.Used != want {
				t.Errorf("counted: %s; want %d", body, want)
			}
		})
	}
}

// keyedUntil repeats a start until it is answered with its session.
func (a api) keyedUntil(ctx context.Context, t *testing.T, c *child) demo.Started {
	t.Helper()
	retry := time.NewTicker(time.Second) // the Retry-After of a start that is in progress
	defer retry.Stop()
	for {
		status, s := a.tryKeyed(ctx, "order-1", c.inbox.CallbackURL())
		switch {
		case status == http.StatusOK:
			return s
		case status != http.StatusConflict || ctx.Err() != nil:
			t.Fatalf("the repeat was answered %d", status)
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
	}
}
