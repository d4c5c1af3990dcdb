package manage

import (
	"errors"
	"net/http"

	"verifyd/edge/account"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/edge/problem"
	"verifyd/edge/web"
)

func (h *Handler) auditOperations() []operation {
	return []operation{
		{http.MethodGet, pathAudit, "manage_audit", grant.AuditRead, false, h.listAudit},
	}
}

// recordDoc is an entry of the audit log in an answer.
type recordDoc struct {
	At       string            `json:"at"`
	Who      string            `json:"who"`
	Identity *string           `json:"identity"` // of a member: members choose their names
	What     string            `json:"what"`
	On       *string           `json:"on"`
	Detail   map[string]string `json:"detail"`
}

// auditPage is a page of an account's audit log.
type auditPage struct {
	Records []recordDoc `json:"records"`
	Next    *string     `json:"next"`
}

// maxAuditPage is how many entries the log reads at once.
const maxAuditPage = 100

// GET /manage/accounts/{account}/audit reads an account's audit log, newest first, even if the account was
// deleted.
func (h *Handler) listAudit(c call) (answer, *problem.Problem) {
	q, p := c.query()
	if p != nil {
		return answer{}, p
	}
	limit, from := q.Number("limit", maxAuditPage, maxAuditPage), q.Single("cursor")
	if p := q.Problem(); p != nil {
		return answer{}, p
	}
	_, err := h.Accounts.Account(c.ctx(), c.account())
	if errors.Is(err, account.ErrNoAccount) {
		_, err = h.Accounts.Deleted(c.ctx(), c.account())
	}
	if err != nil {
		return answer{}, refusal(err)
	}
	page, err := h.Accounts.Audit(c.ctx(), c.account(), from, limit)
	if errors.Is(err, audit.ErrCursor) {
		q.Faultf("cursor", "it must be the next of an earlier answer")
		return answer{}, q.Problem()
	}
	if err != nil {
		return answer{}, refusal(err)
	}
	doc := auditPage{Records: []recordDoc{}, Next: orNull(page.Next)}
	for _, r := range page.Records {
		doc.Records = append(doc.Records, recordDoc{
			web.Timestamp(r.At), r.Who.String(), orNull(r.Who.Identity()), r.What, orNull(r.On), r.Detail,
		})
	}
	return answer{status: http.StatusOK, doc: doc}, nil
}
