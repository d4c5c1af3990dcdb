package records

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// decoders read one record of each kind, of attempt 1 if it is about one.
var decoders = map[string]func(data []byte) (any, error){
	"claim":   func(data []byte) (any, error) { return DecodeClaim("a", 1, data) },
	"result":  func(data []byte) (any, error) { return DecodeResult("a", 1, data) },
	"resend":  func(data []byte) (any, error) { return DecodeResend("a", 1, data) },
	"retry":   func(data []byte) (any, error) { return decodeRetry("a", data) },
	"session": decoder[SessionRecord](sessionVersions, func(r *SessionRecord) *int { return &r.Version }),
	"completion": decoder[CompletionRecord](sessionVersions, func(r *CompletionRecord) *int {
		return &r.Version
	}),
	"event": decoder[eventRecord](eventVersions, func(r *eventRecord) *int { return &r.Version }),
	"reservation": decoder[ReservationRecord](ReservationVersions, func(r *ReservationRecord) *int {
		return &r.Version
	}),
	"lease":   decoder[LeaseRecord](RecordVersions, func(r *LeaseRecord) *int { return &r.Version }),
	"binding": decoder[HoldRecord](RecordVersions, func(r *HoldRecord) *int { return &r.Version }),
	"erasure": decoder[ErasedRecord](RecordVersions, func(r *ErasedRecord) *int { return &r.Version }),
	"keys":    decoder[pageRecord](RecordVersions, func(r *pageRecord) *int { return &r.Version }),
}

func decoder[R any](v versions, version func(*R) *int) func([]byte) (any, error) {
	return func(data []byte) (any, error) {
		var r R
		err := DecodeRecord(data, &r, version(&r), v)
		return r, err
	}
}

// builds holds records as builds have written them, older ones too: of facts without a version, with
// encoding/json's escapes, with durations as nanoseconds.
var builds = map[string][]string{
	"claim": {
		`{"n":1,"worker":"host-1","at":"2026-11-21T12:00:00Z","deadline":"2026-11-21T12:00:05Z","settle_after":"2026-11-21T12:00:20Z"}`,
		`{"v":1,"n":1,"worker":"a\u003cb\u0026c","give_up":true,"at":"2026-11-21T12:00:00.123Z","deadline":"2026-11-21T12:00:00.123Z",` +
			`"settle_after":"2026-11-21T12:00:05.123Z"}`,
	},
	"result": {
		`{"n":1,"verdict":"unknown","class":"crash","detail":"the process ended","by":"host-1","at":"2026-11-21T12:00:00Z"}`,
		`{"v":1,"n":1,"verdict":"rejected","class":"status","status":500,"address":"192.0.2.1:443","answer":"\u003chtml\u003e",` +
			`"timing":{"dns":1000000,"connect":2000000,"tls":3000000,"first_byte":4000000,"total":10000000},` +
			`"next":"2026-11-21T12:00:10Z","by":"host-1","at":"2026-11-21T12:00:00Z"}`,
		`{"v":2,"n":1,"verdict":"delivered","status":204,"timing":{"total":10000000},"by":"host-1","at":"2026-11-21T12:00:00Z","said":"AQID"}`,
	},
	"resend": {
		`{"n":1,"by":"operator","at":"2026-11-21T12:00:00Z"}`,
		`{"v":1,"n":1,"by":"key_k","at":"2026-11-21T12:00:00Z"}`,
	},
	"retry": {
		`{"tries":2,"since":"2026-11-21T12:00:00Z","at":"2026-11-21T12:01:00Z"}`,
		`{"v":1,"asked":2,"tries":3,"since":"2026-11-21T12:00:00Z","at":"2026-11-21T12:01:00Z"}`,
	},
	"event": {
		`{"v":1,"at":"2026-11-21T12:00:00Z","attempt":1,"class":"connect","detail":"refused","timing":{"total":5000000},"next":2000000000}`,
		`{"v":2,"at":"2026-11-21T12:00:00Z","attempt":1,"class":"connect","said":"AQID"}`,
	},
	"lease": {
		`{"v":1,"nonce":"N","browser":"b","at":"2026-11-21T12:00:00Z"}`,
		`{"v":1,"nonce":"N","browser":"b","at":"2026-11-21T12:00:00Z","free":true}`,
	},
	"binding": {
		`{"v":1,"by":"hash","session":"a","earlier":["b"]}`, `{"v":1,"by":"hash","session":"a","sure":true}`,
	},
	"reservation": {
		`{"v":1,"fingerprint":"AQID","token":"BAUG","at":"2026-11-21T12:00:00Z","until":"2026-11-21T12:00:05Z"}`,
		`{"v":1,"at":"2026-11-21T12:00:00Z","released":true}`,
	},
	"session": {`{"v":1,"account":"acc_a","key":"key_k","test":true,"policy":"once","platform":"p","platform_user_id":"u","guild_id":"g",` +
		`"callback":"AQID","created_at":"2026-11-21T12:00:00Z","expires_at":"2026-11-21T12:10:00Z"}`},
	"completion": {`{"v":2,"account":"acc_a","key":"key_k","personal":"AQID","page":"aaaaaaaaaaaaaaaa","slot":7,"created_at":"2026-11-21T12:00:00Z",` +
		`"expires_at":"2026-11-21T12:10:00Z","state":"failed","reason":"refused","rule":"min_account_age","network":"n","completed_at":"2026-11-21T12:01:00Z"}`},
	"erasure": {`{"v":1,"at":"2026-11-21T12:00:00Z","account":"acc_a","page":"aaaaaaaaaaaaaaaa","slot":7}`},
	"keys":    {`{"v":1,"keys":"AQID"}`},
}

// The sealed part of a session is the same to the byte as older builds have written it.
func TestPersonalPartKeepsItsForm(t *testing.T) {
	r := sessions.Request{
		Account: "acc_a", Key: "key_k", Test: true, Policy: sessions.PolicyOnce,
		Platform: "p", PlatformUserID: "u", GuildID: "g", CallbackURL: "https://c.example/",
	}
	const want = `{"p":"p","u":"u","g":"g","c":"https://c.example/"}`
	if data, err := EncodeRecord(r); err != nil || string(data) != want {
		t.Errorf("sealed: %s, %v", data, err)
	}
	r.GuildID = ""
	if data, err := EncodeRecord(r); err != nil || string(data) != strings.Replace(want, `"g":"g",`, "", 1) {
		t.Errorf("sealed without a guild: %s, %v", data, err)
	}
	read := sessions.Request{Account: "acc_a"}
	if err := decodeSealed([]byte(want), &read); err != nil || read.Account != "acc_a" ||
		read.GuildID != "g" ||
		read.CallbackURL != "https://c.example/" {
		t.Errorf("opened: %+v, %v", read, err)
	}
}

func TestWhatBuildsHaveWrittenIsRead(t *testing.T) {
	for kind, decode := range decoders {
		if len(builds[kind]) == 0 {
			t.Errorf("%s: none is written down", kind)
		}
		for _, data := range builds[kind] {
			if _, err := decode([]byte(data)); err != nil {
				t.Errorf("%s: %s: %v", kind, data, err)
			}
		}
	}
	r, err := DecodeResult("a", 1, []byte(builds["result"][1]))
	want := facts.Timing{
		DNS: time.Millisecond, Connect: 2 * time.Millisecond, TLS: 3 * time.Millisecond,
		FirstByte: 4 * time.Millisecond, Total: 10 * time.Millisecond,
	}
	if err != nil || r.Timing != want || r.Answer != "<html>" || r.Next.IsZero() || r.Status != 500 {
		t.Errorf("%+v, %v", r, err)
	}
}

// This build refuses what it does not know, with a description, and never treats it as a record without it.
func TestRecordsAreReadStrictly(t *testing.T) {
	for kind, decode := range decoders {
		last := builds[kind][len(builds[kind])-1]
		for name, data := range map[string]string{
			"unknown member":             strings.TrimSuffix(last, "}") + `,"planted":1}`,
			"name in another case":       strings.Replace(last, `"v":`, `"V":`, 1),
			"member that is there twice": `{"v":1,` + strings.TrimPrefix(last, "{"),
			"text behind it":             last + "x",
			"no UTF-8":                   strings.Replace(last, `"v":`, "\"\xff\":", 1),
		} {
			_, err := decode([]byte(data))
			if !errors.Is(err, facts.ErrUnreadable) || errors.Is(err, natsconf.ErrNewer) {
				t.Errorf("%s with %s: %v", kind, name, err)
			}
			if name == "unknown member" && !strings.Contains(err.Error(), "planted") {
				t.Errorf("%s: the error does not name the member: %v", kind, err)
			}
		}
		for _, data := range []string{`{"v":99}`, `{"v":99,"planted":{}}`, `{"v":99,"n":[1],"at":7}`} {
			if _, err := decode([]byte(data)); !errors.Is(err, natsconf.ErrNewer) ||
				errors.Is(err, facts.ErrUnreadable) {
				t.Errorf("%s of a newer build, %s: %v", kind, data, err)
			}
		}
	}
}

// FuzzFacts checks the decoders of claims and results: what they do not refuse is written and read back the
// same, and what they refuse is a newer build's or unreadable, never nothing. An unreadable claim counts as
// one under which something may have been sent.
func FuzzFacts(f *testing.F) {
	for _, kind := range []string{"claim", "result", "retry", "resend"} {
		for _, data := range builds[kind] {
			f.Add([]byte(data))
		}
	}
	for _, data := range []string{
		"", "null", "[]", `{}`, `{"v":1}`, `{"v":3,"n":1}`, `{"v":-1,"n":1}`, `{"v":1,"n":1,"n":2}`,
		`{"V":1,"N":1}`, `{"v":1,"n":1,"x":1}`,
		`{"v":"1","n":1}`, `{"type":"io.nats.jetstream.api.v1.account_info_response","memory":0}`,
		`{"v":1,"n":1,"timing":{"total":1.5}}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeClaim("a", 1, data)
		checkRefusal(t, err)
		if err == nil {
			again, err := EncodeClaim(c)
			if err != nil {
				t.Fatalf("%+v is not written: %v", c, err)
			}
			if read, err := DecodeClaim("a", 1, again); err != nil || !reflect.DeepEqual(read, c) {
				t.Fatalf("%+v is read back as %+v, %v", c, read, err)
			}
		} else if errors.Is(err, facts.ErrUnreadable) {
			open := []facts.Attempt{facts.UnreadableClaim("a", 1, time.Now()).Attempt(nil)}
			if state := facts.StateOfDelivery(sessions.Outcome{State: sessions.Verified},
				open); state != facts.DeliveryUnknown {
				t.Fatalf("a delivery with the claim %q is %s", data, state)
			}
		}
		r, err := DecodeResult("a", 1, data)
		checkRefusal(t, err)
		if err != nil || r.SealedDetails != "" {
			return
		}
		again, err := EncodeResult(r, Sealer{})
		if err != nil {
			t.Fatalf("%+v is not written: %v", r, err)
		}
		if read, err := DecodeResult("a", 1, again); err != nil || !reflect.DeepEqual(read, r) {
			t.Fatalf("%+v is read back as %+v, %v", r, read, err)
		}
	})
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if err != nil && errors.Is(err, natsconf.ErrNewer) == errors.Is(err, facts.ErrUnreadable) {
		t.Fatalf("refused as neither or both: %v", err)
	}
}
