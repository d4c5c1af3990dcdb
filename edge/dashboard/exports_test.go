package dashboard_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/browsertest"
)

// hold opens an address and does not read the answer.
func (b *browser) hold(path string) (answer <-chan string) {
	b.t.Helper()
	return b.r.setup.slow.Hold(b.t, b.Client, b.Request(http.MethodGet, path, ""))
}

// Clients that do not read hold no slot, neither by exports nor by pages: the lists of other accounts are
// shown, and those of operators, and exports of others begin. A person and an account have a few exports at
// once.
func TestSlowClientsTakeNoSlots(t *testing.T) {
	t.Parallel()
	slow := browsertest.NewSlow()
	r := newRig(t, setup{slow: slow})
	const accounts, each, slots = 8, 4, 8
	var held []<-chan string
	crowded := func(b *browser) {
		t.Helper()
		over := b.Get("/dashboard/export?format=csv")
		over.Want(t, http.StatusTooManyRequests, "Many exports at once")
		if over.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	for i := range accounts {
		name := "owner" + strconv.Itoa(i)
		a := r.owned("Guild "+strconv.Itoa(i), name, "second"+strconv.Itoa(i))
		r.session(a)
		b := r.as(name)
		for range each {
			held = append(held, b.hold("/dashboard/export?format=jsonl"))
		}
		if i == 0 {
			crowded(r.as("second0"))
			r.owned("Pier Guild", name)
			crowded(b)
		}
	}
	r.session(r.account("Lake Guild"))
	vera := r.as("vera")
	for range slots {
		held = append(held, vera.hold("/dashboard/sessions"), vera.hold("/dashboard/callbacks"))
	}
	vera.Get("/dashboard/sessions").Want(t, http.StatusOK, "sailor_42")
	vera.Get("/dashboard/callbacks").Want(t, http.StatusOK)
	vera.Get("/dashboard/export?format=csv").Want(t, http.StatusOK, "sailor_42")
	r.grant("boss")
	boss := r.as("boss")
	for range slots {
		held = append(held, boss.hold("/dashboard/operator/undelivered"))
	}
	boss.Get("/dashboard/operator").Want(t, http.StatusOK)
	slow.Release()
	for _, answer := range held {
		if a := <-answer; browsertest.IsCut(a) {
			t.Errorf("an answer that was read late ends with %.200q", a)
		}
	}
}

// An export ends before its next page when the visitor's login has ended, or they are no member any more, and
// is not taken for a whole one. It goes on when they look at another account.
func TestExportEndsWithTheLogin(t *testing.T) {
	t.Parallel()
	const all, page = 150, 100
	for name, c := range map[string]struct {
		who  string
		end  func(r *rig, b *browser)
		gone bool
	}{
		"logout everywhere": {"vera", func(_ *rig, b *browser) {
			b.post("/dashboard/logout", "everywhere", "yes").Want(t, http.StatusSeeOther)
		}, true},
		"removed": {"dev", func(r *rig, _ *browser) {
			if _, err := r.accounts.RemoveMember(t.Context(), access.Operator(""),
				r.mirror.AccountsOf("example", "dev")[0].ID, "example", "dev"); err != nil {
				t.Fatal(err)
			}
		}, true},
		"another account": {"olga", func(r *rig, b *browser) {
			b.To(b.post("/dashboard/account", "to", r.owned("Pier Guild", "olga").ID))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{slow: browsertest.NewSlow()})
			a := r.account("Harbor Guild")
			for range all {
				r.session(a)
			}
			b := r.as(c.who)
			answer := b.hold("/dashboard/export?format=jsonl")
			c.end(r, b)
			r.setup.slow.Release()
			got := <-answer
			lines, cut := strings.Count(got, "\n"), browsertest.IsCut(got)
			if c.gone && (lines > page || !cut) || !c.gone && (lines != all || cut) {
				t.Errorf("%d of %d sessions, cut off: %t", lines, all, cut)
			}
		})
	}
}

// Ten pages of one person are kept up to date, and fifty of all accounts of an owner, whoever looks at them.
func TestLivePagesAreBounded(t *testing.T) {
	t.Parallel()
	const ofPerson, ofOwner = 10, 50
	r := newRig(t, setup{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func(b *browser, live string) (status int) {
		t.Helper()
		resp, err := b.Client.Do(b.Request(http.MethodGet, live, "").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode
	}
	pageOf := func(b *browser, a account.Account) (live string) {
		t.Helper()
		path := "/dashboard/sessions/" + string(r.session(a).ID)
		return between(t, b.Get(path).Body, `data-live="`, `"`)
	}
	names := []string{"owner0", "owner1", "owner2", "owner3", "owner4", "owner5"}
	guild, opened := r.owned("Guild", names...), 0
	for _, name := range names {
		b := r.as(name)
		live, own := pageOf(b, guild), 0
		for range ofPerson + 1 {
			want := http.StatusOK
			if own == ofPerson || opened == ofOwner {
				want = http.StatusNoContent
			}
			status := open(b, live)
			if status != want {
				t.Fatalf("page %d of %s, of %d in all: %d, want %d", own+1, name, opened, status, want)
			}
			if status == http.StatusOK {
				own, opened = own+1, opened+1
			}
		}
	}
	other := r.as("other")
	if status := open(other, pageOf(other, r.owned("Lake Guild", "other"))); status != http.StatusOK {
		t.Errorf("a page of another owner: %d", status)
	}
}
