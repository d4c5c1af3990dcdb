package site

import "verifyd/sessions"

// ToneOfState is the colour of a state; the word stands beside it.
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
func ToneOfVerdict(v sessions.Verdict) string {
	switch v {
	case sessions.VerdictDelivered:
		return "good"
	case sessions.VerdictRejected, sessions.VerdictUndeliverable:
		return "bad"
	default:
		return "caution"
	}
}

// ToneOfDelivery is ToneOfState for a delivery.
func ToneOfDelivery(s sessions.DeliveryState) string {
	switch s {
	case sessions.DeliveryDelivered:
		return "good"
	case sessions.DeliveryRejected, sessions.DeliveryUndeliverable:
		return "bad"
	case sessions.DeliveryUnknown:
		return "caution"
	default:
		return ""
	}
}
