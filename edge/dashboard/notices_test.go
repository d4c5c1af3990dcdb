package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/account"
	"verifyd/edge/account/notice"
)

// notices stores some notices of an account, the newest last.
func (r *rig) notices(a account.Account, details ...string) {
	r.t.Helper()
	for _, d := range details {
		if err := notice.NewStore(r.conn).Raise(r.t.Context(), notice.New(a.ID, notice.MemberJoined, d,
			r.clock.Now(), d, nil)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Each member reads the account's notices, sees the number of new ones in the bar, and marks them only for
// themselves; viewing marks nothing.
func TestNoticesAreReadAndMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	other := r.account("Quay Guild")
	olga, vera := r.as("olga"), r.as("vera")
	const path, badge = "/dashboard/notices", " unread"
	look(t, vera.Get(path), badge, "Mark all as read").Want(t, http.StatusOK, "Nothing yet")
	r.notices(other, "not yours")
	r.notices(a, "first", "<script>alert(2)</script>\u202e")
	if err := notice.NewStore(r.conn).Raise(t.Context(), notice.New(a.ID, "newer.type", "x", r.clock.Now(),
		"third", nil)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		look(t, vera.Get(path), "not yours", "\u202e").Want(t, http.StatusOK,
			"3 unread", "first", "newer.type", "Mark all as read")
	}
	all, err := notice.NewStore(r.conn).List(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.notices(a, "came since")
	page := vera.Follow(vera.post(path+"/read", "account", a.ID, "newest", all[0].ID))
	page.Want(t, http.StatusOK, "only for you", "1 unread", "came since")
	vera.Get("/dashboard/sessions").Want(t, http.StatusOK, "1 unread")
	olga.Get("/dashboard/sessions").Want(t, http.StatusOK, "4 unread")
	all, err = notice.NewStore(r.conn).List(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	look(t, vera.Follow(vera.post(path+"/read", "account", a.ID, "newest", all[0].ID)), badge,
		"Mark all as read").Want(t, http.StatusOK, "came since")
	vera.post(path+"/read", "account", other.ID, "newest", all[0].ID).Want(t, http.StatusConflict)
}

// Owners and developers set where notices are posted to; a viewer sees only the host, and the audit log does
// not contain the rest of the address.
func TestAddressForNotices(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	a := r.account("Harbor Guild")
	dev, vera := r.as("dev"), r.as("vera")
	const path, address = "/dashboard/notices", "https://bot.example.com/notices?token=planted"
	for typed, says := range map[string]string{
		"http://bot.example.com/": "absolute https URL", "https://10.0.0.1/": "public addresses only",
		"https://localhost/": "this machine", "<b>": "has no place in a URL",
	} {
		dev.post(path+"/address", "account", a.ID, "notice_url", typed).
			Want(t, http.StatusUnprocessableEntity, says)
	}
	dev.Follow(dev.post(path+"/address", "account", a.ID, "notice_url", " "+address+" ")).
		Want(t, http.StatusOK, "Saved")
	if page := dev.Get(path); !strings.Contains(page.Body, address) {
		t.Errorf("the address is not there to be changed: %s", page.Body)
	}
	look(t, vera.Get(path), "planted", "Send a test").Want(t, http.StatusOK, "bot.example.com:443")
	vera.post(path+"/test", "account", a.ID).Want(t, http.StatusForbidden)
	dev.Get(path).Want(t, http.StatusOK, "Send a test notice")
	for range 2 {
		dev.Follow(dev.post(path+"/test", "account", a.ID)).
			Want(t, http.StatusOK, "on its way", "test notice")
	}
	if all, err := notice.NewStore(r.conn).List(t.Context(), a.ID); err != nil || len(all) != 1 ||
		all[0].Type != notice.Test {
		t.Errorf("within a minute %+v, %v", all, err)
	}
	vera.post(path+"/address", "account", a.ID, "notice_url", "").Want(t, http.StatusForbidden)
	now, err := r.accounts.Account(t.Context(), a.ID)
	if err != nil || now.NoticeURL != address {
		t.Errorf("%q, %v", now.NoticeURL, err)
	}
	look(t, dev.Get("/dashboard/audit"), "planted").Want(t, http.StatusOK, "Address for notices set",
		"to: bot.example.com:443")
	dev.Follow(dev.post(path+"/address", "account", a.ID, "notice_url", "")).Want(t, http.StatusOK, "Saved")
	if now, err = r.accounts.Account(t.Context(), a.ID); err != nil || now.NoticeURL != "" {
		t.Errorf("%q, %v", now.NoticeURL, err)
	}
}
