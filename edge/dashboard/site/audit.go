package site

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

// deeds describe what a record reports; a name that is not here is shown as it is.
var deeds = map[string]string{
	account.AccountCreated:   "Account created",
	account.AccountRenamed:   "Account renamed",
	account.AccountDisabled:  "Account disabled",
	account.AccountEnabled:   "Account enabled",
	account.AccountDeleted:   "Account deleted",
	account.SessionsEnded:    "Open sessions canceled",
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
	account.InviteCreated:    "Invite created",
	account.InviteWithdrawn:  "Invite withdrawn",
	account.LinkCreated:      "Login link created",
	account.LinkRedeemed:     "Login link used",
	account.LinkRevoked:      "Login link revoked",
	account.CallbackSent:     "Callback sent again",
	account.CallbackTested:   "Test callback sent",
	account.UserErased:       "User erased",
	account.OperatorGranted:  "Operator granted",
	account.OperatorRevoked:  "Operator revoked",
	account.HostPaused:       "Receiver host paused",
	account.HostResumed:      "Receiver host resumed",
}

// AuditRow is one record as it is drawn.
type AuditRow struct {
	At     time.Time
	Who    string
	Whose  string // their identity, where Who is a name that others may have, too
	What   string
	On     string
	Detail []string // "role: owner"
}

// AuditPage is a page of an audit log, for the template "records".
type AuditPage struct {
	Rows          []AuditRow
	Older, Newest string
}

// AuditLog reads the page of a log that a request asks for, and answers where it cannot be read.
func (s *Site) AuditLog(w http.ResponseWriter, r *http.Request, of, path string) (d AuditPage, ok bool) {
	ctx, cancel := Within(r)
	defer cancel()
	cursor := page.Single(r.URL.Query(), "cursor")
	log, err := s.Accounts.Audit(ctx, of, cursor, auditLimit)
	switch {
	case errors.Is(err, account.ErrCursor):
		page.SeeOther(w, s.Prefix+path)
		return d, false
	case err != nil:
		s.Fail(w, r, nil, err)
		return d, false
	}
	for _, record := range log.Records {
		d.Rows = append(d.Rows, newRow(record))
	}
	if log.Next != "" {
		d.Older = s.Prefix + path + "?" + Query("cursor", log.Next)
	}
	if cursor != "" {
		d.Newest = s.Prefix + path
	}
	return d, true
}

func newRow(r account.Record) AuditRow {
	row := AuditRow{At: r.At, Who: r.Who.String(), Whose: r.Who.Identity(), What: deeds[r.What], On: r.On}
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
