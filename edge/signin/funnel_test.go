package signin_test

import (
	"maps"
	"net/http"
	"testing"

	"verifyd/edge/signin"
	"verifyd/sessions"
	"verifyd/sessions/stats"
)

// Users' steps are counted, by session and by try, and programs that render previews are not counted.
func TestFunnel(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{counted: true})
	opened := func() (*browser, sessions.Token) {
		_, token := r.session()
		b := r.browser()
		for _, agent := range signin.PreviewAgents {
			b.getAs(b.page(token), agent)
		}
		b.getAs(b.page(token), agentPhone)
		r.browser().getAs(b.page(token), agentInsta) // and again elsewhere
		return b, token
	}
	_, unseen := r.session()
	bot := r.browser()
	for _, agent := range signin.PreviewAgents {
		bot.getAs(bot.page(unseen), agent)
	}
	bot.Get(bot.page(unseen)) // a program without a reader
	r.browser().getAs(bot.page(unseen)+"&lang=", agentPhone)

	opened() // and nothing more
	b, token := opened()
	b.press(token) // and never back
	b, token = opened()
	b.Get(b.back(token, "ada", "error")) // failure, then a second try
	back := b.back(token, "ada", "sign-in")
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
	b.Get(back) // nothing is counted again
	b, token = opened()
	b.Follow(b.Get(b.back(token, "ada", "decline")))
	b, token = opened()
	b.Follow(b.act(token, "decline"))

	if got, want := r.counts(), map[stats.Count]int64{
		stats.CountStarted: 6, stats.CountOpened: 5, stats.CountSignIn: 3, stats.CountReturned: 2,
		stats.CountFinished: 3,
		stats.CountVerified: 1, stats.CountDeclined: 2,
		"sign_in:example": 4, "returned:example": 3, "trouble:example": 1, "verified:example": 1,
		"failed_declined:example": 1,
		// including open ones, since the one process that counts has ended
		stats.CountExpired: 3,
	}; !maps.Equal(got, want) {
		t.Errorf("counts = %v\nwant     %v", got, want)
	}
}
