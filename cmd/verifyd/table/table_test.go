package table

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// Tables have the same cells for people and for programs.
func TestTable(t *testing.T) {
	t.Parallel()
	card := NewCard("thing", "Name", ":id", "Quota")
	card.Add("Harbor Guild", "acc_1", NewCell("default", UnlessZero(0)))
	list := New("parts", "PART:name", "LAST USED", "AGE:", "COUNT")
	list.Add("a", time.Time{}, "old", 0)
	list.Add("", time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), "new", 2)
	var out bytes.Buffer
	if err := (Listing{}).Print(&out, card, list); err != nil {
		t.Fatal(err)
	}
	const text = "Name   Harbor Guild\nQuota  default\n\n" +
		"PART  LAST USED             AGE  COUNT\na     -                     old  0\n-     " +
		"2026-11-21T12:00:00Z  new  2\n"
	if out.String() != text {
		t.Errorf("for people:\n%s", &out)
	}
	out.Reset()
	if err := (Listing{JSON: true}).Print(&out, card, list, New("none", "A")); err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out.Bytes()); err != nil {
		t.Fatal(err)
	}
	const doc = `{"none":[],"parts":[{"count":0,"last_used":null,"name":"a"},{"count":2,"last_used":"2026-11-21T12:00:00Z","name":null}],` +
		`"thing":{"id":"acc_1","name":"Harbor Guild","quota":null}}`
	if compact.String() != doc {
		t.Errorf("for programs: %s", &compact)
	}
}
