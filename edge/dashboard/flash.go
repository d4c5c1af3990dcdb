package dashboard

import (
	"net/http"
)

// flashCookie carries the code of what a POST did to the page that comes after it. Nothing of it is shown but what the table has.
const (
	flashCookie  = "verifyd_flash"
	flashSeconds = 60
)

type flashCode string

// The codes.
const (
	flashLoginFirst      flashCode = "login-first"
	flashLoggedOut       flashCode = "logged-out"
	flashLoggedOutAll    flashCode = "logged-out-all"
	flashDeclined        flashCode = "declined"
	flashTrouble         flashCode = "trouble"
	flashUnreachable     flashCode = "unreachable"
	flashAccountMade     flashCode = "account-made"
	flashJoined          flashCode = "joined"
	flashAlreadyMember   flashCode = "already-member"
	flashKeyRevoked      flashCode = "key-revoked"
	flashOnce            flashCode = "once"
	flashResent          flashCode = "resent"
	flashDeliveryOpen    flashCode = "delivery-open"
	flashNothingToSend   flashCode = "nothing-to-send"
	flashRotated         flashCode = "rotated"
	flashRotationEnded   flashCode = "rotation-ended"
	flashRotating        flashCode = "rotating"
	flashNotRotating     flashCode = "not-rotating"
	flashRoleChanged     flashCode = "role-changed"
	flashMemberRemoved   flashCode = "member-removed"
	flashInviteWithdrawn flashCode = "invite-withdrawn"
	flashLastOwner       flashCode = "last-owner"
	flashFaceSet         flashCode = "face-set"
	flashGone            flashCode = "gone"
	flashPaused          flashCode = "paused"
	flashResumed         flashCode = "resumed"
	flashRedriven        flashCode = "redriven"
	flashNothingTicked   flashCode = "nothing-ticked"
)

// flash is what a page says at its top, once.
type flash struct{ Tone, Text string }

var flashes = map[flashCode]flash{
	flashLoginFirst:      {"caution", "You were logged out, so nothing was done. Log in, then do it again."},
	flashLoggedOut:       {"good", "You are logged out."},
	flashLoggedOutAll:    {"good", "You are logged out everywhere."},
	flashDeclined:        {"caution", "You did not finish the login. Nothing was done."},
	flashTrouble:         {"bad", "The login did not finish. Nothing was done. You can try again."},
	flashUnreachable:     {"bad", "The identity network did not answer. Wait a moment, then try again."},
	flashAccountMade:     {"good", "Your account is ready. Make an API key to start."},
	flashJoined:          {"good", "You are a member of this account now."},
	flashAlreadyMember:   {"caution", "You are a member of this account already. The invite stays open for somebody else."},
	flashKeyRevoked:      {"good", "The key is revoked. Calls with it are refused from now on."},
	flashOnce:            {"caution", "That was shown once and cannot be shown again."},
	flashResent:          {"good", "The callback is on its way again, with the same webhook-id."},
	flashDeliveryOpen:    {"caution", "The callback is waiting or being sent already, so nothing was added."},
	flashNothingToSend:   {"caution", "This session has no outcome that is sent."},
	flashRotated:         {"good", "The signing secret is a new one. Give it to your receiver before the overlap ends."},
	flashRotationEnded:   {"good", "The old secret signs no more. Callbacks carry the new signature alone."},
	flashRotating:        {"caution", "A rotation is under way already. End it first, or wait until its overlap is over."},
	flashNotRotating:     {"caution", "No rotation is under way."},
	flashRoleChanged:     {"good", "The role is changed. It counts from the next click."},
	flashMemberRemoved:   {"good", "The member is removed and can see nothing here any more."},
	flashInviteWithdrawn: {"good", "The invite is withdrawn. Its link opens nothing any more."},
	flashLastOwner:       {"bad", "An account needs an owner. Make somebody else an owner first."},
	flashFaceSet:         {"good", "Saved. Your users see it from now on."},
	flashGone:            {"caution", "That is gone already."},
	flashPaused:          {"good", "The host is paused. Nothing new is sent to it; what waits has its whole time after the pause."},
	flashResumed:         {"good", "The host is sent to again. What waits goes out within half a minute."},
	flashRedriven:        {"good", "They are on their way again, with the same webhook-ids. What was due already was left alone."},
	flashNothingTicked:   {"caution", "Nothing was ticked, so nothing is sent again."},
}

// flash says something on the page that the browser sees next.
func (h *Handler) flash(w http.ResponseWriter, code flashCode) {
	h.setFlash(w, string(code), flashSeconds)
}

func (h *Handler) setFlash(w http.ResponseWriter, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure follows the base URL's scheme
		Name: flashCookie, Value: value, Path: h.prefix + pathRoot, MaxAge: maxAge, Secure: h.https, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	})
}

// takeFlash gives what is to be said on this page, and forgets it. A page that keeps itself up to date is fetched behind somebody's back
// (Fetch Metadata §2.1): what is to be said is for the page that the browser goes to.
func (h *Handler) takeFlash(w http.ResponseWriter, r *http.Request) *flash {
	c, err := r.Cookie(flashCookie)
	if err != nil || r.Header.Get("Sec-Fetch-Dest") == "empty" {
		return nil
	}
	h.setFlash(w, "", -1)
	f, ok := flashes[flashCode(c.Value)]
	if !ok {
		return nil
	}
	return &f
}

// done ends a change: it says what was done, on the page that the browser goes to.
func (h *Handler) done(w http.ResponseWriter, code flashCode, to string) {
	h.flash(w, code)
	w.Header().Set("Location", h.prefix+to)
	w.WriteHeader(http.StatusSeeOther)
}
