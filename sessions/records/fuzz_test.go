package records

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"testing"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

// codec checks one kind of record.
type codec func(t *testing.T, data []byte) (written []byte, accepted bool)

// codecOf is the codec of a kind. Whatever the decoder does not refuse is written and read back the same, and
// builds from before the strict codec, which read with encoding/json, have read the same. A build that knows
// one version less refuses what is of the newest as newer, and reads everything else as this one does.
func codecOf[R any](v versions, version func(*R) *int) codec {
	return func(t *testing.T, data []byte) ([]byte, bool) {
		t.Helper()
		var r R
		err := DecodeRecord(data, &r, version(&r), v)
		checkRefusal(t, err)
		if err != nil {
			return nil, false
		}
		written := mustEncode(t, r)
		checkMembers(t, data, written)
		var again, old, older R
		if err := DecodeRecord(written, &again, version(&again), v); err != nil {
			t.Fatalf("%s is written as %s, which is refused: %v", data, written, err)
		}
		if err := stdjson.Unmarshal(data, &old); err != nil {
			t.Fatalf("%s is refused by encoding/json: %v", data, err)
		}
		for by, read := range map[string]R{"this build": again, "encoding/json": old} {
			if b := mustEncode(t, read); !bytes.Equal(b, written) {
				t.Fatalf("%s is read as %s, and by %s as %s", data, written, by, b)
			}
		}
		err = DecodeRecord(data, &older, version(&older), versions{v.Oldest, v.Newest - 1})
		switch {
		case *version(&r) < v.Newest && (err != nil || !bytes.Equal(mustEncode(t, older), written)):
			t.Fatalf("an older build reads %s as %+v, %v", data, older, err)
		case *version(&r) == v.Newest && !errors.Is(err, natsconf.ErrNewer):
			t.Fatalf("an older build reads %s, which is newer: %v", data, err)
		}
		return written, true
	}
}

// checkMembers checks that every accepted member is known, in this very case, and occurs once: it is among
// what was written, or has no meaning.
func checkMembers(t *testing.T, data, written []byte) {
	t.Helper()
	var given, kept map[string]any
	if stdjson.Unmarshal(data, &given) != nil || stdjson.Unmarshal(written, &kept) != nil {
		t.Fatalf("%s or %s is no object", data, written)
	}
	for name, v := range given {
		if _, ok := kept[name]; !ok && !saysNothing(v) {
			t.Fatalf("%s is accepted, and written without %q: %s", data, name, written)
		}
	}
	d := stdjson.NewDecoder(bytes.NewReader(data))
	names, depth, name := map[string]bool{}, 0, false
	for {
		token, err := d.Token()
		if err != nil {
			return
		}
		switch token {
		case stdjson.Delim('{'), stdjson.Delim('['):
			depth++
			name = depth == 1
			continue
		case stdjson.Delim('}'), stdjson.Delim(']'):
			depth--
		default:
			if text, ok := token.(string); ok && depth == 1 && name {
				if names[text] {
					t.Fatalf("%s is accepted with %q twice", data, text)
				}
				names[text], name = true, false
				continue
			}
		}
		name = name || depth == 1
	}
}

// saysNothing reports whether a member may be left out when its value is written.
func saysNothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == 0
	case string:
		return v == "" || v == "0001-01-01T00:00:00Z"
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, inner := range v {
			if !saysNothing(inner) {
				return false
			}
		}
	}
	return true
}

func mustEncode(t *testing.T, r any) []byte {
	t.Helper()
	b, err := EncodeRecord(r)
	if err != nil {
		t.Fatalf("%+v is not written: %v", r, err)
	}
	return b
}

var codecs = map[string]codec{
	"claim":      codecOf(factVersions, func(r *claimRecord) *int { return &r.Version }),
	"result":     codecOf(resultVersions, func(r *resultRecord) *int { return &r.Version }),
	"resend":     codecOf(factVersions, func(r *resendRecord) *int { return &r.Version }),
	"retry":      codecOf(factVersions, func(r *retryRecord) *int { return &r.Version }),
	"session":    codecOf(sessionVersions, func(r *SessionRecord) *int { return &r.Version }),
	"completion": codecOf(sessionVersions, func(r *CompletionRecord) *int { return &r.Version }),
	"event":      codecOf(eventVersions, func(r *eventRecord) *int { return &r.Version }),
	"lease":      codecOf(RecordVersions, func(r *LeaseRecord) *int { return &r.Version }),
	"progress":   codecOf(RecordVersions, func(r *progressRecord) *int { return &r.Version }),
	"binding":    codecOf(RecordVersions, func(r *HoldRecord) *int { return &r.Version }),
	"erasure":    codecOf(RecordVersions, func(r *ErasedRecord) *int { return &r.Version }),
	"keys":       codecOf(RecordVersions, func(r *pageRecord) *int { return &r.Version }),
	"reservation": codecOf(ReservationVersions, func(r *ReservationRecord) *int {
		return &r.Version
	}),
}

// fuzzCodec adds what builds have written of some kinds as seeds; the testdata holds what a service wrote.
func fuzzCodec(f *testing.F, kinds ...string) {
	f.Helper()
	for _, kind := range kinds {
		for _, data := range builds[kind] {
			f.Add([]byte(data))
		}
	}
}

// A claim fences the one POST, and a result ends it: see codecOf.
func FuzzClaim(f *testing.F) {
	fuzzCodec(f, "claim")
	f.Fuzz(func(t *testing.T, data []byte) {
		_, accepted := codecs["claim"](t, data)
		var r claimRecord
		_ = DecodeRecord(data, &r, &r.Version, factVersions)
		c, err := DecodeClaim("a", r.Number, data)
		if accepted != (err == nil) || accepted && (c.Session != "a" || c.Unreadable) {
			t.Fatalf("%s: %+v, %v", data, c, err)
		}
		if _, err := DecodeClaim("a", r.Number+1, data); err == nil {
			t.Fatalf("%s is read as the claim of another attempt", data)
		}
	})
}

func FuzzResult(f *testing.F) {
	fuzzCodec(f, "result")
	f.Fuzz(func(t *testing.T, data []byte) {
		_, accepted := codecs["result"](t, data)
		var r resultRecord
		_ = DecodeRecord(data, &r, &r.Version, resultVersions)
		read, err := DecodeResult("a", r.Number, data)
		if accepted != (err == nil) || accepted && read.Verdict != DecodeVerdict(data) {
			t.Fatalf("%s: %+v, %v; the verdict alone is %q", data, read, err, DecodeVerdict(data))
		}
	})
}

// A retry without the time since which it is due is refused: it would be due forever.
func FuzzRetry(f *testing.F) {
	fuzzCodec(f, "retry")
	f.Add([]byte(`{"v":1,"tries":1,"at":"2026-11-21T12:01:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		written, accepted := codecs["retry"](t, data)
		r, err := decodeRetry("a", data)
		checkRefusal(t, err)
		switch {
		case accepted != (err == nil) && !r.Since.IsZero(), err == nil && r.Since.IsZero():
			t.Fatalf("%s: %+v, %v", data, r, err)
		case err != nil:
			return
		}
		if again, err := encodeRetry(r); err != nil || len(again) < len(written) { // its version may be added
			t.Fatalf("%+v is written as %s, %v; before as %s", r, again, err, written)
		}
	})
}

// A completion begins as its session's record does: code that closes sessions reads that part of either.
func FuzzCompletion(f *testing.F) {
	fuzzCodec(f, "completion", "session")
	f.Fuzz(func(t *testing.T, data []byte) {
		_, accepted := codecs["completion"](t, data)
		part, err := decodeOutcomeOrRecord("a", topology.StreamCompletions, data)
		var whole CompletionRecord
		if werr := DecodeOf("a", data, &whole, &whole.Version); (werr == nil) != accepted ||
			(err == nil) != accepted {
			t.Fatalf("%s: %v, its record %v", data, werr, err)
		}
		if accepted && !bytes.Equal(mustEncode(t, *part), mustEncode(t, whole.SessionRecord)) {
			t.Fatalf("%s: the record is %+v, alone %+v", data, whole.SessionRecord, part)
		}
		if _, ok := codecs["session"](t, data); ok && accepted && whole.State != "" {
			t.Fatalf("%s is both a record and an outcome", data)
		}
		if accepted && whole.SealedSession("a").ID != sessions.ID("a") {
			t.Fatalf("%s has another session", data)
		}
	})
}

// All other kinds: see codecOf.
func FuzzRecord(f *testing.F) {
	for kind, all := range builds {
		for _, data := range all {
			f.Add(kind, []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		if check, ok := codecs[kind]; ok {
			check(t, data)
		}
	})
}
