package api

import (
	"testing"

	"verifyd/sessions/urlpolicy"
)

func BenchmarkDecodeVerification(b *testing.B) {
	policy := urlpolicy.NewPolicy(nil, nil)
	body := []byte(goodBody)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, faults := decodeVerification(body, policy); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
