package config

import (
	"verifyd/edge/account/secrets"
	"verifyd/sessions/urlpolicy"
)

// alarmSettings configure how operators are notified of events.
type alarmSettings struct {
	AlarmURL      string `name:"alarm-url" help:"https address that operator events are posted to, signed; empty: they are only in the log and on NATS."`
	AlarmSecret   string `secret:"" help:"Secret that signs operator events: whsec_ and base64, as for callbacks."`
	AlarmFailures int    `default:"5" help:"Number of sessions in a row whose callback a receiver must fail to accept before operators are notified."`
}

// Alarms is where operator events go.
type Alarms struct {
	URL      urlpolicy.URL // zero: only to the log and NATS
	Secret   string
	Failures int
}

func (s alarmSettings) config(f *Faults, policy *urlpolicy.Policy) Alarms {
	c := Alarms{Secret: s.AlarmSecret, Failures: s.AlarmFailures}
	if s.AlarmFailures < 1 {
		f.outOfRange("alarm-failures", s.AlarmFailures, "use 1 or more, for example 5")
	}
	if s.AlarmURL == "" {
		return c
	}
	var err error
	if c.URL, err = policy.Parse(s.AlarmURL); err != nil {
		f.Add("alarm-url", err.Error(),
			"for example https://ops.example.com/verifyd; the rules for callbacks apply")
	}
	if err := secrets.CheckSigning(s.AlarmSecret); err != nil {
		f.Add("alarm-secret", err.Error(), `create one with: echo "whsec_$(openssl rand -base64 32)"`)
	}
	return c
}
