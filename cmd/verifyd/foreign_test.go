package main

import (
	"fmt"
	"strings"
	"testing"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// A record that no verifyd wrote fails no list and keeps nobody from a change: what can be read is listed,
// and what cannot is named.
func TestForeignRecordsFailNoList(t *testing.T) {
	t.Parallel()
	r := boot(t)
	v := r.api().read(t, r.begin(t).Session)
	a := account.IDOf("Harbor Guild")
	other := strings.Repeat("b", len(v.ID))
	for subject, stream := range map[string]string{
		topology.BucketSubject(topology.BucketAccounts, "acc_"+other[:20]):              "KV_accounts",
		topology.BucketSubject(topology.BucketAccounts, "foreign"):                      "KV_accounts",
		topology.BucketSubject(topology.BucketKeys, other[:20]+"."+other[:20]):          "KV_keys",
		topology.BucketSubject(topology.BucketKeys, other[:20]):                         "KV_keys",
		topology.BucketSubject(topology.BucketOperations, "operator."+other):            "KV_operations",
		topology.BucketSubject(topology.BucketOperations, "operator-link."+other):       "KV_operations",
		topology.BucketSubject(topology.BucketOperations, "operator-token."+other):      "KV_operations",
		topology.BucketSubject(topology.BucketOperations, "account-link."+a+"."+other):  "KV_operations",
		topology.BucketSubject(topology.BucketOperations, "pause."+other):               "KV_operations",
		topology.BucketSubject(topology.BucketAlarms, "receiver.failing."+other):        "KV_alarms",
		topology.BucketSubject(topology.BucketStore, "erased."+other):                   "KV_store",
		topology.BucketSubject(topology.BucketSessions, a+"."+other):                    "KV_sessions",
		topology.BucketSubject(topology.BucketSessions, "pages.seen."+a+"."+other+".1"): "KV_sessions",
		topology.BucketSubject(topology.BucketIdentities, other):                        "KV_identities",
		topology.BucketSubject(topology.BucketKeyUses, "key_"+other[:20]):               "KV_key-uses",
		"notice." + a + ".b": "NOTICES", "notice-read." + a + ".b": "NOTICES",
		"notice-open." + a + ".b": "NOTICES", fmt.Sprintf("audit.%s.%d", a, 1<<60): "AUDIT",
		"session.created." + v.ID: "EVENTS", "session.foreign." + v.ID: "EVENTS",
		"schedule." + v.ID: "RETRIES", "completion." + other: "COMPLETIONS",
	} {
		natstest.Plant(t, r.Store.Conn, stream, subject)
	}
	natstest.Plant(t, r.Store.Conn, topology.StreamAudit, "audit."+a+".3") // in the next one's place
	for _, by := range []string{"Ada", "Bob"} {
		member := account.Member{Network: "dev", Subject: by, Role: access.RoleOwner}
		if _, err := r.Store.Accounts.AddMember(t.Context(), operator(), a, member); err != nil {
			t.Errorf("a change of an account: %v", err)
		}
	}
	named := map[string]string{
		"key list": "key entry", "account list": "account foreign",
		"account show Harbor_Guild":  "account-link.",
		"account audit Harbor_Guild": "audit.", "operator list": "$KV.operations.operator.",
		"operator token list": "$KV.operations.operator-token.",
	}
	for _, line := range []string{
		"key list", "account list", "account show Harbor_Guild", "account audit Harbor_Guild",
		"member list --account Harbor_Guild", "operator list", "operator audit", "operator token list",
		"hosts list", "deliveries list", "deliveries show " + v.ID, "explain " + v.ID,
		"erase --platform-user-id sailor_42 --all-accounts --dry-run",
		"sessions export --account Harbor_Guild",
		"account delete Harbor_Guild --now",
	} {
		args := strings.Fields(line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_Guild", " Guild")
		}
		code, out, errOut := r.run(t, args...)
		if code != 0 {
			t.Errorf("%s: exit %d: %s%s", line, code, out, errOut)
		}
		if !strings.Contains(errOut, named[line]) {
			t.Errorf("%s does not name %q: %s", line, named[line], errOut)
		}
		if line == "account audit Harbor_Guild" &&
			(strings.Count(out, "member.added") != 2 || !strings.Contains(out, "account.created")) {
			t.Errorf("the audit log lacks records: %s", out)
		}
	}
}
