package site

import (
	"net/http"
	"strconv"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/limit"
	"verifyd/edge/web"
)

// nameRate is how many names a person may try, for new accounts and for those that they rename: each is
// compared with the names of all accounts. Twenty at once let somebody look for a free one. After that, a
// person who makes accounts and passes them on to others makes six an hour at most.
var nameRate = account.Rate{Count: 6, Per: time.Hour, Burst: 20}

// changeRate is how many changes a person may make, in all of their accounts: each
// leaves a record in the audit log, which nobody can remove. A person who goes
// through a list makes fewer.
var changeRate = account.Rate{Count: 1, Per: time.Second, Burst: 200}

// accountRate is how many changes all members of an account may make in it.
var accountRate = account.Rate{Count: 2, Per: time.Second, Burst: 400}

// rates are those of one process.
type rates struct{ names, changes, inAccounts *limit.Rates }

func newRates() (r rates, err error) {
	for _, one := range []struct {
		of   **limit.Rates
		rate account.Rate
	}{{&r.names, nameRate}, {&r.changes, changeRate}, {&r.inAccounts, accountRate}} {
		if *one.of, err = limit.NewRates(one.rate); err != nil {
			return r, err
		}
	}
	return r, nil
}

// problemManyChanges describes what happened, then what to do.
var problemManyChanges = Problem{
	Status: http.StatusTooManyRequests, Heading: "Many changes at once",
	Lead: "You, or the members of this account, have made many changes in a short time, so this one was " +
		"not made.",
	Next: "Wait a few seconds, go back, and press the button again.",
}

// problemManyNames describes what happened, then what to do.
var problemManyNames = Problem{
	Status: http.StatusTooManyRequests, Heading: "Many names at once",
	Lead: "You have tried many names for accounts, so this one was not looked at.",
	Next: "Wait ten minutes, then try again.",
}

// TakeName takes a name from the rate of whoever tries it. If there is none left it answers the request, and
// ok is false.
func (s *Site) TakeName(w http.ResponseWriter, v *Visit, by access.Actor) (ok bool) {
	return take(s, w, v, s.rates.names, by.Maker().String(), problemManyNames)
}

// TakeChange takes a change from the rate of whoever is logged in, and from that of the visit's account, if
// there is one. If there is none left it answers the request, and ok is false.
func TakeChange(s *Site, w http.ResponseWriter, v *Visit, by logins.Login) (ok bool) {
	return take(s, w, v, s.rates.changes, Visit{Login: by}.Person(), problemManyChanges) && (v == nil ||
		take(s, w, v, s.rates.inAccounts, v.Account.ID, problemManyChanges))
}

// take takes a unit of somebody's rate. If there is none left it answers the request, and ok is false.
func take(s *Site, w http.ResponseWriter, v *Visit, of *limit.Rates, who string, refused Problem) (ok bool) {
	d := of.Allow(account.Key{ID: who}, s.Now())
	if !d.Allowed {
		w.Header().Set("Retry-After", strconv.FormatInt(web.Seconds(d.RetryAfter), 10))
		s.DrawProblem(w, v, refused)
	}
	return d.Allowed
}
