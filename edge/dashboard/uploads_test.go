package dashboard_test

import (
	"bytes"
	"image"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
)

const lookPath = "/dashboard/sign-in-page/look"

// owned creates an account whose owners are these people.
func (r *rig) owned(name string, owners ...string) account.Account {
	r.t.Helper()
	members := make([]account.Member, len(owners))
	for i, subject := range owners {
		members[i] = account.Member{
			Network: "example", Subject: subject, Name: subject, Role: access.RoleOwner,
		}
	}
	a, err := r.accounts.CreateAccount(r.t.Context(), access.Operator(""), name, members[0])
	for _, m := range members[1:] {
		if err == nil {
			a, err = r.accounts.AddMember(r.t.Context(), access.Operator(""), a.ID, m)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.until("the directory knows "+name, func() bool {
		for _, known := range r.mirror.AccountsOf("example", owners[len(owners)-1]) {
			if known.ID == a.ID {
				return true
			}
		}
		return false
	})
	return a
}

// beginUpload sends the beginning of a form with a logo, and returns when the service reads it. finish sends
// the rest and returns the status of the answer.
func (b *browser) beginUpload(of account.Account) (finish func() int) {
	b.t.Helper()
	body, rest := io.Pipe()
	form := multipart.NewWriter(rest)
	reads := make(chan struct{})
	req := b.Request(http.MethodPost, lookPath, "")
	req.Body, req.ContentLength = body, -1
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Expect", "100-continue") // sent when the handler begins to read
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got100Continue: func() { close(reads) },
	}))
	status := make(chan int, 1)
	go func() {
		resp, err := b.Client.Do(req)
		if err != nil {
			b.t.Error(err)
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	select {
	case <-reads:
	case early := <-status:
		b.t.Fatalf("an upload is answered %d at once", early)
	}
	return func() int {
		b.t.Helper()
		if form.WriteField("account", of.ID) != nil || form.Close() != nil || rest.Close() != nil {
			b.t.Error("the rest of an upload is not read")
		}
		return <-status
	}
}

// Uploads are held in memory: a person and an account have one at a time, and all together a few. Those that
// are under way go on.
func TestUploadsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	const all = 8
	upload := func(b *browser, to account.Account) answer {
		t.Helper()
		b.To(b.post("/dashboard/account", "to", to.ID))
		return b.upload(lookPath, nil, "account", to.ID)
	}
	crowded := func(a answer) {
		t.Helper()
		a.Want(t, http.StatusTooManyRequests, "Many files at once", "Nothing was changed")
		if a.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	first := r.owned("Guild 0", "owner0", "second0")
	other := r.owned("Lake Guild", "owner0")
	owner, second := r.as("owner0"), r.as("second0")
	owner.To(owner.post("/dashboard/account", "to", first.ID))
	finish := []func() int{owner.beginUpload(first)}
	crowded(upload(second, first))
	crowded(upload(owner, other))
	for i := 1; i < all; i++ {
		name := "owner" + strconv.Itoa(i)
		finish = append(finish, r.as(name).beginUpload(r.owned("Guild "+strconv.Itoa(i), name)))
	}
	last := r.owned("Guild 8", "owner8")
	ninth := r.as("owner8")
	crowded(upload(ninth, last))
	for i, finish := range finish {
		if status := finish(); status != http.StatusSeeOther {
			t.Errorf("upload %d ends with %d", i, status)
		}
	}
	for b, to := range map[*browser]account.Account{ninth: last, second: first, owner: other} {
		upload(b, to).Want(t, http.StatusSeeOther)
	}
}

// Logos cost time to read, so an account may upload a few at once and then one a minute. Colours are saved as
// often as somebody likes.
func TestLogosHaveARate(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	a := r.account("Harbor Guild")
	b := r.as("olga")
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewNRGBA(image.Rect(0, 0, 40, 40))); err != nil {
		t.Fatal(err)
	}
	const atOnce = 10
	for range atOnce {
		b.upload(lookPath, file.Bytes(), "account", a.ID).Want(t, http.StatusSeeOther)
	}
	over := b.upload(lookPath, file.Bytes(), "account", a.ID)
	over.Want(t, http.StatusTooManyRequests, "Slow down a little")
	if got := over.Header.Get("Retry-After"); got != "60" {
		t.Errorf("Retry-After is %q, want 60", got)
	}
	b.upload(lookPath, nil, "account", a.ID, "button", "#ffd500", "button_own", "yes").
		Want(t, http.StatusSeeOther)
	r.clock.advance(time.Minute)
	b.upload(lookPath, file.Bytes(), "account", a.ID).Want(t, http.StatusSeeOther)
}
