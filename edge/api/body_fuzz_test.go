package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"verifyd/edge/request"
	"verifyd/sessions/urlpolicy"
)

// FuzzDecodeVerification checks the decoder with any body: no panic; either a complete verification or
// faults; another JSON reader reads an accepted body in the same way, and the store keeps it unchanged.
func FuzzDecodeVerification(f *testing.F) {
	f.Add([]byte(goodBody))
	f.Add([]byte(strings.Replace(goodBody, "{", `{"beyond":1e700,`, 1)))
	for _, row := range badInits {
		f.Add([]byte(row.body))
	}
	policy := urlpolicy.NewPolicy(nil, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		v, faults := decodeVerification(body, policy)
		for _, fault := range faults {
			if fault.Code == "" || fault.Detail == "" || !utf8.ValidString(fault.Field+fault.Detail) ||
				len(fault.Field) > request.MaxShownName {
				t.Fatalf("fault = %+q", fault)
			}
		}
		if len(faults) > 0 {
			return
		}
		var std map[string]any
		// A member that is ignored may be a number that no float64 holds. Valid sees what follows the object.
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&std); err != nil || !json.Valid(body) {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		guild, given := std["guild_id"]
		if std["platform"] != v.platform || std["platform_user_id"] != v.platformUserID ||
			std["callback_url"] != v.callback.String() ||
			given && guild != v.guildID || !given && v.guildID != "" {
			t.Fatalf("read %+v, encoding/json reads %v", v, std)
		}
		for _, s := range []string{v.platform, v.platformUserID, v.guildID} {
			if !utf8.ValidString(s) || len(s) > MaxFieldBytes {
				t.Fatalf("accepted %q", s)
			}
		}
		if v.platform == "" || v.platformUserID == "" || v.callback.Host() == "" {
			t.Fatalf("accepted %+v", v)
		}
	})
}
