package service

import (
	"verifyd/edge/account"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/signin"
)

// requesters provides the sign-in page with accounts as end users know them.
type requesters struct{ mirror *keymirror.Mirror }

// Requester implements signin.Accounts.
func (a requesters) Requester(id string) (signin.Requester, bool) {
	acc, ok := a.mirror.Account(id)
	who := requesterOf(acc)
	who.Closed = ok && !acc.InService()
	return who, ok
}

func requesterOf(a account.Account) signin.Requester {
	return signin.Requester{
		ID: a.ID, Name: a.Name, Verified: !a.VerifiedAt.IsZero(), ReturnURL: a.ReturnURL, Colour: a.Colour,
		MaxUsers: a.MaxUsers, Branding: a.Branding,
	}
}
