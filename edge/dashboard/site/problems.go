package site

import (
	"fmt"
	"net/http"
	"strconv"
)

// Problem is a page that explains why something was not done.
type Problem struct {
	Status  int
	Heading string
	Lead    string
	Next    string
}

// With returns the problem with another status.
func (p Problem) With(status int) Problem { p.Status = status; return p }

// The problems that several packages answer with. The texts describe what happened, then what to do.
var (
	ProblemNotFound = Problem{
		Status: http.StatusNotFound, Heading: "There is nothing here",
		Lead: "This account has no such thing, or it is no longer kept.",
		Next: "Go back to the list you came from.",
	}
	ProblemNowhere = Problem{
		Heading: "There is no such page", Lead: "The address that you opened leads to no page.",
		Next: "Check the address, or begin at the first page of the dashboard or of the documents.",
	}
	ProblemForbidden = Problem{
		Status: http.StatusForbidden, Heading: "Your role does not allow this",
		Lead: "Nothing was changed.",
		Next: "Ask an owner of this account to do it, or to give you another role.",
	}
	problemDisabled = Problem{
		Status: http.StatusForbidden, Heading: "This account is disabled",
		Lead: "The operator has taken it out of service, or an owner has requested its deletion. " +
			"Nothing was changed.",
		Next: "Ask the operator, or an owner. It works as before once it is in service again.",
	}
	problemForeign = Problem{
		Status: http.StatusForbidden, Heading: "Please start from the dashboard",
		Lead: "Another site sent you here, so nothing was done.",
		Next: "Open the dashboard and press the button there. If you did, update your browser or try " +
			"another one.",
	}
	ProblemMalformed = Problem{
		Status: http.StatusBadRequest, Heading: "That did not work",
		Lead: "What arrived here did not come from our page. Nothing was done.",
		Next: "Go back, reload the page, and try again.",
	}
	problemOtherAccount = Problem{
		Status: http.StatusConflict, Heading: "You are in another account now",
		Lead: "This form belongs to a different account from the one you are viewing, so nothing was done.",
		Next: "Switch to the account you mean, and do it again there.",
	}
	problemTooManyLists = Problem{
		Status: http.StatusTooManyRequests, Heading: "Too many lists at once",
		Lead: "Too many lists are being loaded for you or this account's owner, so this one was not.",
		Next: "Wait a second, then load the page again.",
	}
	problemTooManyUploads = Problem{
		Status: http.StatusTooManyRequests, Heading: "Many files at once",
		Lead: "Too many files are being uploaded right now, so this one was not. Nothing was changed.",
		Next: "Wait a few seconds, go back, and press the button again.",
	}
	problemLogFull = Problem{
		Status: http.StatusConflict, Heading: "The audit log of this account is full",
		Lead: "It has as many records as are kept for one account, so nothing was changed. Keys can still " +
			"be revoked and rolled, the secret rotated, and members removed.",
		Next: "Ask the operator of this service; look in the audit log for who made so many changes.",
	}
	problemUnavailable = Problem{
		Status: http.StatusServiceUnavailable, Heading: "One moment, please",
		Lead: "We cannot reach our records right now. Nothing is lost.",
		Next: "Wait a few seconds, then try again.",
	}
	ProblemUncertain = Problem{
		Status: http.StatusServiceUnavailable, Heading: "We are not sure whether that worked",
		Lead: "Our records gave no answer in time. What you did may or may not be stored.",
		Next: "Check before you do it again.",
	}
)

// tooLarge is the problem of a form, its file or the text beside that, of more bytes than it may have.
func tooLarge(what string, most int64) Problem {
	return Problem{
		Status: http.StatusRequestEntityTooLarge, Heading: "That " + what + " is too large",
		Lead: fmt.Sprintf("It may have %d KiB at most, so nothing was changed.", most>>10),
		Next: "Go back, make it smaller, and try again.",
	}
}

// retryAfter is the Retry-After of answers while JetStream is unavailable, in seconds.
const retryAfter = 5

// DrawProblem answers with a problem, inside the account's frame if there is a visit.
func (s *Site) DrawProblem(w http.ResponseWriter, v *Visit, p Problem) {
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	s.Draw(w, View{
		Page: "problem", Title: p.Heading, Status: p.Status, Visit: v,
		Data: struct{ Heading, Lead, Next string }{p.Heading, p.Lead, p.Next},
	})
}
