package manage

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/natsconf/natstest"
)

// A signing secret is rotated over HTTP: the new one is in the answer that created it, signs alongside the
// old one for the overlap, and is in no other answer; neither is an earlier one.
func TestSecretsAreRotated(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token, reads := r.token(grant.SecretsWrite), r.token(grant.AccountsRead, grant.MembersRead)
	a, at := r.harbor()
	old := a.Secrets[0].Value
	before := r.ask(reads, "GET", at+"/secrets", "")
	made := r.ask(token, "POST", at+"/secrets", `{"overlap_seconds":3600}`, keyHeader, "k1")
	secret, _ := made.doc["secret"].(string)
	if made.status != http.StatusCreated || !strings.HasPrefix(secret, "whsec_") || secret == old ||
		made.doc["stored"] != true || made.doc["ends_at"] != nil || made.doc["previous_ends_at"] == nil {
		t.Fatalf("rotate: %s", made)
	}
	natstest.Await(t, "both sign", func() bool {
		signs, _ := r.mirror.SigningSecrets(a.ID)
		return len(signs) == 4 && signs[0] == secret && signs[1] == old
	})
	if again := r.ask(token, "POST", at+"/secrets", `{"overlap_seconds":3600}`, keyHeader,
		"k1"); again.doc["secret"] != secret {
		t.Errorf("the repeat under the key: %s", again)
	}
	if a := r.ask(token, "POST", at+"/secrets", `{}`); a.code() != "state_conflict" {
		t.Errorf("a rotation within a rotation: %s", a)
	}
	list := r.ask(reads, "GET", at+"/secrets", "")
	both, _ := list.doc["secrets"].([]any)
	first, _ := before.doc["secrets"].([]any)
	if len(both) != 2 || len(first) != 1 ||
		both[0].(map[string]any)["public_key"] != made.doc["public_key"] ||
		both[1].(map[string]any)["public_key"] != first[0].(map[string]any)["public_key"] {
		t.Errorf("the list: %s, before it %s", list, before)
	}
	ended := r.ask(token, "DELETE", at+"/secrets/previous", "")
	if left, _ := ended.doc["secrets"].([]any); len(left) != 1 {
		t.Errorf("end the rotation: %s", ended)
	}
	alone := r.ask(token, "POST", at+"/secrets", `{"overlap_seconds":0}`)
	if alone.status != http.StatusCreated || alone.doc["previous_ends_at"] != nil {
		t.Errorf("rotate without an overlap: %s", alone)
	}
	link, _, err := r.accounts.LoginLink(t.Context(), console, a.ID, access.RoleViewer)
	if err != nil {
		t.Fatal(err)
	}
	links := r.ask(reads, "GET", at+"/login-links", "")
	if open, _ := links.doc["login_links"].([]any); len(open) != 1 {
		t.Errorf("login links: %s", links)
	}
	for _, answer := range []reply{before, list, ended, links, r.ask(reads, "GET", at, "")} {
		if strings.Contains(string(answer.body), "whsec_") || strings.Contains(string(answer.body), link) {
			t.Errorf("an answer shows a secret: %s", answer)
		}
	}
	if log := r.log.String(); strings.Contains(log, secret) || strings.Contains(log, old) {
		t.Error("the log has a secret")
	}
}
