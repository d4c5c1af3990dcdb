package site

import (
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// ToneOfState returns the colour of a state; the word is next to it.
func ToneOfState(s sessions.State) string {
	switch s {
	case sessions.Verified:
		return "good"
	case sessions.Failed:
		return "bad"
	default:
		return ""
	}
}

// ToneOfVerdict is ToneOfState for an attempt's verdict.
func ToneOfVerdict(v facts.Verdict) string {
	switch v {
	case facts.VerdictDelivered:
		return "good"
	case facts.VerdictRejected, facts.VerdictUndeliverable:
		return "bad"
	default:
		return "caution"
	}
}

// ToneOfDelivery is ToneOfState for a delivery.
func ToneOfDelivery(s facts.DeliveryState) string {
	switch s {
	case facts.DeliveryDelivered:
		return "good"
	case facts.DeliveryRejected, facts.DeliveryUndeliverable:
		return "bad"
	case facts.DeliveryUnknown:
		return "caution"
	default:
		return ""
	}
}
