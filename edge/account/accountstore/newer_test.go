package accountstore_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// A key or an account that a newer build has written is not judged by its earlier state, which may have
// ended: the request is to be repeated, at an edge that can read it. When it can be read again, it works
// again. Other keys are not affected.
func TestNewerKeysAndAccountsAreNotJudged(t *testing.T) {
	t.Parallel()
	for bucket, what := range map[string]string{
		topology.BucketKeys: "key", topology.BucketAccounts: "account",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild")
			if err != nil {
				t.Fatal(err)
			}
			secret, _, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			other, err := h.store.CreateAccount(t.Context(), operator, "Other")
			if err != nil {
				t.Fatal(err)
			}
			others, _, err := h.store.CreateKey(t.Context(), operator, other.ID, account.KeyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			natstest.Await(t, "the keys are mirrored", func() bool {
				_, one := h.mirror.Lookup(secret)
				_, two := h.mirror.Lookup(others)
				return one == nil && two == nil
			})
			filter := topology.BucketSubject(bucket, a.ID)
			if bucket == topology.BucketKeys {
				filter = "" // the key's entry, by its account
			}
			subject, data := entryOf(t, h, bucket, filter, a.ID)
			newer := regexp.MustCompile(`"v":\d+`).ReplaceAll(data, []byte(`"v":99`))
			for _, step := range []struct {
				data []byte
				want error
			}{{newer, natsconf.ErrNewer}, {data, nil}} {
				natstest.Publish(t, h.conn, subject, step.data)
				natstest.Await(t, "the entry is mirrored", func() bool {
					_, err := h.mirror.Lookup(secret)
					return errors.Is(err, step.want)
				})
				if _, err := h.mirror.Lookup(others); err != nil {
					t.Errorf("another's key: %v", err)
				}
			}
		})
	}
}

// A newer build may write another shape, too: it is reported as such, with what to do, and its keys and
// accounts are not judged either.
func TestNewerShapesAreNotJudged(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild")
	if err != nil {
		t.Fatal(err)
	}
	secret, k, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.GrantOperator(t.Context(), operator, "example", "olga"); err != nil {
		t.Fatal(err)
	}
	token, _, err := h.store.LoginLink(t.Context(), operator, a.ID, access.RoleOwner)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the key is mirrored", func() bool { return err2(h.mirror.Lookup(secret)) == nil })
	shapes := []struct {
		bucket, below, shape string
		read                 func() error
	}{
		{topology.BucketOperations, "operator.>", `{"v":2,"since":{"at":0}}`,
			func() error { return err2(h.store.IsOperator(t.Context(), "example", "olga")) }},
		{topology.BucketLogins, "link.>", `{"v":3,"account":{"id":"x"}}`,
			func() error { return err2(h.store.RedeemLoginLink(t.Context(), token)) }},
		{topology.BucketKeys, ">", `{"v":3,"account":{"id":"x"}}`,
			func() error { return err2(h.store.RevokeKey(t.Context(), operator, a.ID, k.ID)) }},
		{topology.BucketAccounts, a.ID, `{"v":5,"name":["x"]}`,
			func() error { return err2(h.store.Account(t.Context(), a.ID)) }},
	}
	for _, s := range shapes {
		m, err := h.conn.Last(t.Context(), topology.BucketStream(s.bucket),
			topology.BucketSubject(s.bucket, s.below))
		if err != nil {
			t.Fatal(err)
		}
		natstest.Publish(t, h.conn, m.Subject, []byte(s.shape))
		if err := s.read(); !errors.Is(err, natsconf.ErrNewer) ||
			!strings.Contains(err.Error(), "run the newer verifyd") {
			t.Errorf("%s%s: %v", s.bucket, s.below, err)
		}
		if s.bucket != topology.BucketKeys {
			continue
		}
		natstest.Await(t, "the key is judged no more", func() bool {
			return errors.Is(err2(h.mirror.Lookup(secret)), natsconf.ErrNewer)
		})
	}
	if err := err2(h.store.Operators(t.Context())); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("operators: %v", err)
	}
}

// entryOf finds an entry by its subject or, if that is empty, by the account that its record names.
func entryOf(t *testing.T, h harness, bucket, subject, id string) (string, []byte) {
	t.Helper()
	msgs, err := h.conn.Newest(t.Context(), topology.BucketStream(bucket),
		topology.BucketSubject(bucket, ">"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs {
		if m.Subject() == subject || subject == "" &&
			regexp.MustCompile(`"account":"`+id+`"`).Match(m.Data()) {
			return m.Subject(), m.Data()
		}
	}
	t.Fatalf("no entry of %s", id)
	return "", nil
}

// A process that writes a record again writes all of it. What a newer build has put into it would be lost,
// whether a newer version or an unknown member; so the record is read as far as it can be, and not written.
func TestNewerRecordsAreNotWrittenAgain(t *testing.T) {
	h := start(t)
	a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild")
	if err != nil {
		t.Fatal(err)
	}
	_, k, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]func() error{
		topology.BucketAccounts: func() error { return h.store.SetQuota(t.Context(), operator, a.ID, 7) },
		topology.BucketKeys: func() error {
			_, _, err := h.store.RollKey(t.Context(), operator, a.ID, k.ID, time.Hour)
			return err
		},
	}
	for bucket, change := range changes {
		filter := topology.BucketSubject(bucket, a.ID)
		if bucket == topology.BucketKeys {
			filter = ""
		}
		subject, data := entryOf(t, h, bucket, filter, a.ID)
		for name, newer := range map[string][]byte{
			"version": regexp.MustCompile(`"v":\d+`).ReplaceAll(data, []byte(`"v":99`)),
			"member": regexp.MustCompile(`^\{`).
				ReplaceAll(data, []byte(`{"planted":["https://shop.example"],`)),
			"member of a part": regexp.MustCompile(`"last":\{`).
				ReplaceAll(data, []byte(`"last":{"planted":1,`)),
		} {
			if string(newer) == string(data) {
				t.Fatalf("%s: %s is not there: %s", bucket, name, data)
			}
			natstest.Publish(t, h.conn, subject, newer)
			if err := change(); err == nil || !strings.Contains(err.Error(), "run the newer verifyd") {
				t.Errorf("%s with a newer %s is changed: %v", bucket, name, err)
			}
			if _, after := entryOf(t, h, bucket, subject, a.ID); string(after) != string(newer) {
				t.Errorf("%s with a newer %s was written again: %s", bucket, name, after)
			}
		}
		natstest.Publish(t, h.conn, subject, data)
		if err := change(); err != nil {
			t.Errorf("%s as this build writes it: %v", bucket, err)
		}
	}
}

// A right is removed whatever else the record holds: an older build would leave a leaked key alive otherwise,
// until all are upgraded.
func TestRightsAreTakenFromNewerRecords(t *testing.T) {
	h := start(t)
	a, err := h.store.CreateAccount(t.Context(), operator, "Harbor Guild")
	if err != nil {
		t.Fatal(err)
	}
	_, k, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{Name: "leaked"})
	if err != nil {
		t.Fatal(err)
	}
	subject, data := entryOf(t, h, topology.BucketKeys, "", a.ID)
	natstest.Publish(t, h.conn, subject, regexp.MustCompile(`^\{`).
		ReplaceAll(data, []byte(`{"planted":["https://shop.example"],`)))
	if _, err := h.store.RevokeKey(t.Context(), operator, a.ID, k.ID); err != nil {
		t.Fatal(err)
	}
	if _, after := entryOf(t, h, topology.BucketKeys, subject, a.ID); !strings.Contains(string(after),
		`"revoked_at"`) || !strings.Contains(string(after), `"planted":["https://shop.example"]`) {
		t.Errorf("the revoked key's record is %s", after)
	}
}
