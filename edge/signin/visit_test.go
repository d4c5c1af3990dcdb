package signin_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/timeline"
)

const (
	agentPhone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1"
	agentInsta = "Mozilla/5.0 (Linux; Android 15; Pixel 8; wv) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Version/4.0 Chrome/131.0.0.0 Mobile Safari/537.36 Instagram 358.0"
	agentLine = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Mobile/22B83 Safari Line/14.19.1"
	agentSomeApp = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Mobile/22B83"
	agentTelegram = "Mozilla/5.0 (Linux; Android 15; Pixel 8; wv) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Version/4.0 Chrome/131.0.0.0 Mobile Safari/537.36 Telegram-Android/11.4.2"
)

func (b *browser) getAs(address, agent string) answer {
	b.t.Helper()
	req := b.Request(http.MethodGet, address, "")
	req.Header.Set("User-Agent", agent)
	return b.Do(req)
}

// The user's steps are on the session's timeline, and a reload loop adds nothing to it.
func TestVisitIsOnTheTimeline(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	b.Get(b.page(token)) // a program without a reader
	for range 50 {
		b.getAs(b.page(token), agentPhone).WantPage(t, http.StatusOK, headingAsk)
	}
	head := b.Request(http.MethodHead, b.page(token), "")
	head.Header.Set("User-Agent", agentPhone)
	b.Do(head)
	back := b.back(token, "x", "sign-in")
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
	b.Get(back) // again
	b.getAs(b.page(token), agentPhone)
	r.wantTimeline(session.ID, "created", "opened", "sign_in", "returned", "completed", "finished")

	session, token = r.session()
	b.Get(b.back(token, "x", "error"))
	b.act(token, "decline")
	r.wantTimeline(session.ID, "created", "sign_in", "returned", "trouble", "completed", "finished")
}

// wantTimeline waits for the timeline's last event, which is not acknowledged, and compares.
func (r *rig) wantTimeline(id sessions.ID, want ...string) {
	r.t.Helper()
	if err := r.conn.NC.Flush(); err != nil {
		r.t.Fatal(err)
	}
	var got []string
	natstest.Await(r.t, fmt.Sprintf("a timeline of %d entries", len(want)), func() bool {
		_, entries, err := r.store.Timeline(r.t.Context(), id)
		if err != nil {
			r.t.Fatalf("timeline %q, want %q: %v", got, want, err)
		}
		got = got[:0]
		for _, e := range entries {
			if e.Kind == timeline.EntryEvent {
				got = append(got, string(e.Event.Name))
			} else {
				got = append(got, string(e.Kind))
			}
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		r.t.Errorf("timeline %q, want %q", got, want)
	}
}

// In an app's own browser the page names the app, links out of it if possible, shows the link as a QR code,
// and still lets the user sign in.
func TestInsideAnApp(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v"})
	host := strings.TrimPrefix(r.server.URL, "http://")
	for agent, tc := range map[string]struct{ says, link string }{
		agentInsta: {
			"open inside <bdi>Instagram</bdi>",
			`href="intent://` + host +
				`/v/?session=TOKEN#Intent;scheme=http;action=android.intent.action.VIEW;category=android.intent.category.BROWSABLE;end"`,
		},
		agentLine: {
			"open inside <bdi>LINE</bdi>", `href="` + r.base + `/?session=TOKEN&amp;openExternalBrowser=1"`,
		},
		agentTelegram: {"open inside <bdi>Telegram</bdi>", ""},
		agentSomeApp:  {"open inside another app", ""},
	} {
		session, token := r.session()
		b := r.browser()
		a := b.getAs(b.page(token), agent)
		a.WantPage(t, http.StatusOK, headingAsk)
		body := strings.ReplaceAll(a.Body, token.Reveal(), "TOKEN")
		for _, part := range []string{
			tc.says, tc.link, "Continue with <bdi>Example Network</bdi>", `aria-label="QR code of this link"`,
		} {
			if !strings.Contains(body, part) {
				t.Errorf("%s: the page lacks %q\n%s", agent, part, body)
			}
		}
		if tc.link == "" && strings.Contains(body, "Open in your browser</a>") {
			t.Errorf("%s: a link out where there is none", agent)
		}
		if strings.Contains(body, "style=") || strings.Contains(body, "<script") ||
			strings.Contains(body, "data:") {
			t.Errorf("%s: what the policy forbids is in the page", agent)
		}
		b.Follow(b.Get(b.back(token, "x", "sign-in"))).WantPage(t, http.StatusOK, headingVerified)
		r.want(session.ID, sessions.Verified, sessions.NoReason)
	}
	_, token := r.session()
	b := r.browser()
	if a := b.getAs(b.page(token), agentPhone); strings.Contains(a.Body, "QR code") ||
		regexp.MustCompile(`open inside`).MatchString(a.Body) {
		t.Error("Safari is taken for an app")
	}
}

// The press, the return and the end weigh little in an app's browser too.
func TestWeightInsideAnApp(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	b := r.browser()
	_, token := r.session()
	body := b.getAs(b.page(token)+"&lang=ar", agentInsta).Body
	n := len(body)
	for _, asset := range assetsOf(body) {
		n += len(b.Get(r.server.URL + asset).Body)
	}
	if n >= 30_000 {
		t.Errorf("%d bytes, want under 30,000", n)
	}
	t.Logf("%d bytes", n)
}
