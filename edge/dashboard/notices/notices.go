// Package notices serves the page /dashboard/notices. On it members of an account read its notices, each with
// their own marks, and set the address that notices are posted to.
package notices

import (
	"embed"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"verifyd/edge/account/access"
	"verifyd/edge/account/notice"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions/urlpolicy"
)

//go:embed web
var webFiles embed.FS

const (
	pathRead    = "/dashboard/notices/read"
	pathAddress = "/dashboard/notices/address"
	pathTest    = "/dashboard/notices/test"

	// pathDue is the list of sessions whose callbacks wait for their next try.
	pathDue = paths.Sessions + "?delivery=due"

	fieldAddress = "notice_url"
)

const (
	flashRead    site.FlashCode = "notices-read"
	flashAddress site.FlashCode = "notices-address"
	flashTest    site.FlashCode = "notices-test"
)

// Part is what site.New needs of this package.
func Part() site.Part {
	return site.Part{Files: webFiles, Pages: []string{"notices"}, Flashes: map[site.FlashCode]site.Flash{
		flashRead: {Tone: "good", Text: "Marked as read, only for you."},
		flashAddress: {
			Tone: "good", Text: "Saved. Only what happens from now on is posted there.",
		},
		flashTest: {Tone: "good", Text: "A test notice is on its way to the address. One a minute is sent."},
	}}
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	*site.Site

	notices *notice.Store
	policy  *urlpolicy.Policy
}

// New returns the handler. policy decides which addresses may be posted to; what it refuses now would be
// refused at each try.
func New(s *site.Site, notices *notice.Store, policy *urlpolicy.Policy) (*Handler, error) {
	if notices == nil || policy == nil {
		return nil, errors.New("dashboard: Notices and Addresses are required")
	}
	return &Handler{s, notices, policy}, nil
}

// Routes returns the route table.
func (h *Handler) Routes() []web.Route {
	return []web.Route{
		paths.Get(paths.Notices, h.Read(access.ActionView, h.show)),
		paths.Post(pathRead, h.Mutate(access.ActionView, h.markRead)),
		paths.Post(pathAddress, h.Mutate(access.ActionNotices, h.setAddress)),
		paths.Post(pathTest, h.Mutate(access.ActionNotices, h.sendTest)),
	}
}

// row is a notice as the page shows it.
type row struct {
	notice.Notice

	Title, Tone string
	To, Where   string // the page on which something can be done about it
}

type data struct {
	Rows   []row
	Newest string // the id up to which the page marks as read; empty: there is nothing to mark
	Host   string // of the address, for members who may not see all of it; empty: there is none
}

// kinds has the page's name for each type of notice.
var kinds = map[notice.Type]row{
	notice.ReceiverFailing:   {Title: "Receiver failing", Tone: "bad", To: pathDue, Where: "What is due"},
	notice.ReceiverRecovered: {Title: "Recovered", Tone: "good", To: pathDue, Where: "What is due"},
	notice.OutcomeWaiting: {Title: "Decision needed", Tone: "bad", To: paths.Callbacks,
		Where: "Callbacks"},
	notice.QuotaReached:  {Title: "Quota", Tone: "caution", To: paths.Usage, Where: "Usage"},
	notice.KeyExpiring:   {Title: "Key expires", Tone: "caution", To: paths.Keys, Where: "API keys"},
	notice.KeyExpired:    {Title: "Key expired", Tone: "bad", To: paths.Keys, Where: "API keys"},
	notice.SecretRotated: {Title: "Secret rotated", To: paths.Signing, Where: "Signing"},
	notice.Test:          {Title: "Test"},
	notice.MemberJoined:  {Title: "Member joined", To: paths.Members, Where: "Members"},
}

// rowOf returns a notice as the page shows it; one of a newer build's type under the name of the type.
func rowOf(n notice.Notice) row {
	r, known := kinds[n.Type]
	if !known {
		r.Title = string(n.Type)
	}
	r.Notice = n
	return r
}

// show answers GET /dashboard/notices. It marks nothing as read: a browser may fetch it by itself.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.draw(w, r, v, &form.Form{Values: url.Values{fieldAddress: {v.Account.NoticeURL}}})
}

func (h *Handler) draw(w http.ResponseWriter, r *http.Request, v site.Visit, f *form.Form) {
	ctx, cancel := h.Within(r)
	defer cancel()
	all, err := h.notices.Seen(ctx, v.Account.ID, v.Actor())
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	var d data
	for _, n := range all {
		if !n.Read && d.Newest == "" {
			d.Newest = all[0].ID
		}
		d.Rows = append(d.Rows, rowOf(n))
	}
	if to, err := urlpolicy.ParseNamed(v.Account.NoticeURL); err == nil {
		d.Host = to.HostPort()
	}
	status := http.StatusOK
	if !f.OK() {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "notices", Title: "Notices", Nav: "notices", Visit: &v, Flash: h.TakeFlash(w, r), Form: f,
		Status: status, Data: d,
	})
}

// markRead answers POST /dashboard/notices/read: what the page showed is read, and nothing that came after.
func (h *Handler) markRead(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	err := h.notices.MarkRead(ctx, v.Account.ID, v.Actor(), page.Single(r.PostForm, "newest"))
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	h.Done(w, flashRead, paths.Notices)
}

// setAddress answers POST /dashboard/notices/address.
func (h *Handler) setAddress(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f := form.New(r)
	var to urlpolicy.URL
	if typed := strings.TrimSpace(f.Text(fieldAddress)); typed != "" {
		var err error
		if to, err = h.policy.Parse(typed); err != nil {
			detail := err.Error()
			if fault, ok := errors.AsType[*urlpolicy.Fault](err); ok {
				detail = form.Sentence(fault.Detail)
			}
			f.Wrong(fieldAddress, detail)
			h.draw(w, r, v, f)
			return
		}
	}
	if err := h.Accounts.SetNoticeURL(ctx, v.Actor(), v.Account.ID, to); err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	h.Done(w, flashAddress, paths.Notices)
}

// sendTest answers POST /dashboard/notices/test: a notice that says nothing, and is posted like any other.
func (h *Handler) sendTest(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	now := h.Now()
	minute := now.UTC().Format("2006-01-02T15:04")
	err := h.notices.Raise(ctx, notice.New(v.Account.ID, notice.Test, minute, now,
		"This is a test notice, which a member of the account asked for. Nothing has happened.", nil))
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	h.Done(w, flashTest, paths.Notices)
}
