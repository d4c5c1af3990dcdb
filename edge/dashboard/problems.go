package dashboard

import (
	"net/http"
	"strconv"
)

// problem is a page that says why something was not done.
type problem struct {
	status  int
	heading string
	lead    string
	next    string
}

func (p problem) with(status int) problem { p.status = status; return p }

// The problems. They say what happened, then what to do.
var (
	problemNotFound = problem{
		http.StatusNotFound, "There is nothing here",
		"This account has no such thing, or it is no longer kept.", "Look at the list that you came from.",
	}
	problemForbidden = problem{
		http.StatusForbidden, "Your role does not allow this",
		"Nothing was changed.", "Ask an owner of this account to do it, or to give you another role.",
	}
	problemNoOperator = problem{
		http.StatusForbidden, "This page is for operators",
		"You are logged in, but not as an operator of this service.", "Whoever runs the service makes you one with: verifyd operator grant NETWORK:SUBJECT",
	}
	problemForeign = problem{
		http.StatusForbidden, "Please start from the dashboard",
		"Another site sent you here, so nothing was done.", "Open the dashboard and press the button there. If you did, update your browser or try another one.",
	}
	problemMalformed = problem{
		http.StatusBadRequest, "That did not work",
		"What arrived here does not come from our page. Nothing was done.", "Go back, reload the page, and try again.",
	}
	problemOtherAccount = problem{
		http.StatusConflict, "You are in another account now",
		"This form was drawn for another account than the one you look at, so nothing was done.", "Switch to the account you mean, and do it again there.",
	}
	problemTooMany = problem{
		http.StatusTooManyRequests, "Slow down a little",
		"Many callbacks of this account were sent again within seconds, so this one was not.", "Wait a few seconds, go back, and press the button again.",
	}
	problemUnavailable = problem{
		http.StatusServiceUnavailable, "One moment, please",
		"We cannot reach our records right now. Nothing is lost.", "Wait a few seconds, then try again.",
	}
	problemUncertain = problem{
		http.StatusServiceUnavailable, "We are not sure whether that worked",
		"Our records gave no answer in time. What you did may be stored or not.", "Look before you do it again.",
	}
	problemLost = problem{
		http.StatusBadRequest, "We lost track of your login",
		"This browser did not bring back the cookie that your login began with. It happens when cookies are blocked, or when too much time has passed.",
		"Allow cookies for this site, then log in again.",
	}
	problemLoginLink = problem{
		http.StatusGone, "This login link cannot be used",
		"It was used before, it has expired, it was taken back, or it is not complete. A login link works once, for 10 minutes.", "Ask the operator for a new one.",
	}
	problemInvite = problem{
		http.StatusGone, "This invite cannot be used",
		"It was accepted or withdrawn, it has expired, or the link is not complete.", "Ask whoever invited you for a new one.",
	}
)

// retryAfter is what a browser is told to wait while JetStream is away, in seconds.
const retryAfter = 5

// drawProblem answers with a problem, inside the account's frame where there is a visit.
func (h *Handler) drawProblem(w http.ResponseWriter, v *visit, p problem) {
	if p.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	h.draw(w, view{
		page: "problem", Title: p.heading, status: p.status, visit: v,
		Data: struct{ Heading, Lead, Next string }{p.heading, p.lead, p.next},
	})
}
