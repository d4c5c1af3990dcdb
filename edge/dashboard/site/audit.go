package site

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account/audit"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/page"
)

// auditLimit is a page of the log.
const auditLimit = 50

// deeds describe what a record reports; a name without a description is shown as it is.
var deeds = map[string]string{
	audit.AccountCreated:   "Account created",
	audit.AccountRenamed:   "Account renamed",
	audit.AccountDisabled:  "Account disabled",
	audit.AccountEnabled:   "Account enabled",
	audit.NameGranted:      "Name granted by the operator",
	audit.NameVerified:     "Verified mark given",
	audit.NameUnverified:   "Verified mark removed",
	audit.DeletionAsked:    "Deletion requested",
	audit.AccountRestored:  "Deletion canceled",
	audit.MemberMovedOut:   "Member moved to another account",
	audit.MemberMovedIn:    "Member moved here",
	audit.AccountDeleted:   "Account deleted",
	audit.SessionsEnded:    "Open sessions canceled",
	audit.QuotaSet:         "Monthly quota set",
	audit.ReturnOriginsSet: "Allowed sites of the link back set",
	audit.BindingSet:       "Binding of sessions set",
	audit.ReturnURLSet:     "Link back for users set",
	audit.ColourSet:        "Colour for users set",
	audit.LookSet:          "Look for users set",
	audit.NoticesSet:       "Address for notices set",
	audit.KeyCreated:       "API key created",
	audit.KeyWasRolled:     "API key rolled",
	audit.KeyWasRevoked:    "API key revoked",
	audit.SecretRotated:    "Signing secret rotated",
	audit.RotationEnded:    "Rotation of the signing secret ended",
	audit.SecretRevealed:   "Signing secret shown",
	audit.MemberAdded:      "Member added",
	audit.MemberJoined:     "Member joined by invite",
	audit.RoleChanged:      "Role changed",
	audit.MemberRemoved:    "Member removed",
	audit.InviteCreated:    "Invite created",
	audit.InviteWithdrawn:  "Invite withdrawn",
	audit.LinkCreated:      "Login link created",
	audit.LinkRedeemed:     "Login link used",
	audit.LinkRevoked:      "Login link revoked",
	audit.CallbackSent:     "Callback sent again",
	audit.CallbackTested:   "Test callback sent",
	audit.OutcomesSeen:     "Undelivered outcomes marked as seen",
	audit.UserErased:       "User erased",
	audit.OperatorGranted:  "Operator granted",
	audit.TokenCreated:     "Operator token created",
	audit.TokenRevoked:     "Operator token revoked",
	audit.OperatorRevoked:  "Operator revoked",
	audit.HostPaused:       "Receiver host paused",
	audit.HostResumed:      "Receiver host resumed",
}

// AuditRow is one record as the page shows it.
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

// AuditLog reads the page of a log that a request asks for. It answers the request if the log cannot be read.
func (s *Site) AuditLog(w http.ResponseWriter, r *http.Request, of, path string) (d AuditPage, ok bool) {
	ctx, cancel := s.Within(r)
	defer cancel()
	cursor := page.Single(r.URL.Query(), "cursor")
	log, err := s.Accounts.Audit(ctx, of, cursor, auditLimit)
	switch {
	case errors.Is(err, audit.ErrCursor):
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
		d.Older = s.Prefix + path + "?" + form.Query("cursor", log.Next)
	}
	if cursor != "" {
		d.Newest = s.Prefix + path
	}
	return d, true
}

// maxDetail is how much of a detail is shown: the sessions that were sent again together would fill the page,
// and the command line has all of them.
const maxDetail = 200

func cutDetail(s string) string {
	if runes := []rune(s); len(runes) > maxDetail {
		return string(runes[:maxDetail]) + "…"
	}
	return s
}

func newRow(r audit.Record) AuditRow {
	row := AuditRow{At: r.At, Who: r.Who.String(), Whose: r.Who.Identity(), What: deeds[r.What], On: r.On}
	if row.Whose == row.Who {
		row.Whose = ""
	}
	if row.What == "" {
		row.What = r.What
	}
	for _, name := range slices.Sorted(maps.Keys(r.Detail)) {
		row.Detail = append(row.Detail, strings.ReplaceAll(name, "_", " ")+": "+cutDetail(r.Detail[name]))
	}
	return row
}
