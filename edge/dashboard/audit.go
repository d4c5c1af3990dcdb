package dashboard

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/page"
)

// auditLimit is a page of the log.
const auditLimit = 50

// deeds say what a record tells; a name that is not here is shown as it is.
var deeds = map[string]string{
	account.AccountCreated:   "Account created",
	account.QuotaSet:         "Monthly quota set",
	account.ReturnOriginsSet: "Allowed sites of the link back set",
	account.ReturnURLSet:     "Link back for users set",
	account.ColourSet:        "Colour for users set",
	account.KeyCreated:       "API key created",
	account.KeyWasRolled:     "API key rolled",
	account.KeyWasRevoked:    "API key revoked",
	account.SecretRotated:    "Signing secret rotated",
	account.RotationEnded:    "Rotation of the signing secret ended",
	account.SecretRevealed:   "Signing secret shown",
	account.MemberAdded:      "Member added",
	account.MemberJoined:     "Member joined by invite",
	account.RoleChanged:      "Role changed",
	account.MemberRemoved:    "Member removed",
	account.InviteCreated:    "Invite made",
	account.InviteWithdrawn:  "Invite withdrawn",
	account.LinkCreated:      "Login link made",
	account.LinkRedeemed:     "Login link used",
	account.LinkRevoked:      "Login link revoked",
	account.CallbackSent:     "Callback sent again",
	account.CallbackTested:   "Test callback sent",
	account.UserErased:       "User erased",
	account.OperatorGranted:  "Operator made",
	account.OperatorRevoked:  "Operator revoked",
	account.HostPaused:       "Receiver host paused",
	account.HostResumed:      "Receiver host resumed",
}

type auditRow struct {
	At     time.Time
	Who    string
	Whose  string // their identity, where Who is a name that others may have, too
	What   string
	On     string
	Detail []string // "role: owner"
}

type auditData struct {
	Rows          []auditRow
	Older, Newest string
}

// showAudit answers GET /dashboard/audit, newest first.
func (h *Handler) showAudit(w http.ResponseWriter, r *http.Request, v visit) {
	if d, ok := h.auditPage(w, r, v.account.ID, pathAudit); ok {
		h.draw(w, view{page: "audit", Title: "Audit log", Nav: "audit", visit: &v, Flash: h.takeFlash(w, r), Data: d})
	}
}

// auditPage reads the page of a log that a request asks for, and answers where it cannot be read.
func (h *Handler) auditPage(w http.ResponseWriter, r *http.Request, of, path string) (d auditData, ok bool) {
	ctx, cancel := within(r)
	defer cancel()
	cursor := page.Single(r.URL.Query(), "cursor")
	log, err := h.Accounts.Audit(ctx, of, cursor, auditLimit)
	switch {
	case errors.Is(err, account.ErrCursor):
		page.SeeOther(w, h.prefix+path)
		return d, false
	case err != nil:
		h.fail(w, r, nil, err)
		return d, false
	}
	for _, record := range log.Records {
		d.Rows = append(d.Rows, newAuditRow(record))
	}
	if log.Next != "" {
		d.Older = h.prefix + path + "?" + query("cursor", log.Next)
	}
	if cursor != "" {
		d.Newest = h.prefix + path
	}
	return d, true
}

func newAuditRow(r account.Record) auditRow {
	row := auditRow{At: r.At, Who: r.Who.String(), Whose: r.Who.Identity(), What: deeds[r.What], On: r.On}
	if row.Whose == row.Who {
		row.Whose = ""
	}
	if row.What == "" {
		row.What = r.What
	}
	for _, name := range slices.Sorted(maps.Keys(r.Detail)) {
		row.Detail = append(row.Detail, strings.ReplaceAll(name, "_", " ")+": "+r.Detail[name])
	}
	return row
}
