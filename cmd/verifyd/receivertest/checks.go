package receivertest

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/sessions/facts"
)

// Outcome is how a check ended.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Look Outcome = "look" // nothing is wrong as far as can be seen from outside; Why says what to check
)

// check is one test of a receiver.
type check struct {
	name string
	// make returns the requests to send, in order; valid is a valid callback, with an id of its own.
	make func(valid callback.Probe) []callback.Probe
	// judge returns the outcome, and why it matters if it is not a pass.
	judge func(answers []callback.Answer) (Outcome, string)
}

// The checks that are judged together; see Report.weigh.
const (
	checkChanged    = "A body changed after it was signed"
	checkUnsigned   = "No signature at all"
	checkKnownLast  = "Two signatures, the known one last"
	checkKnownFirst = "Two signatures, the known one first"
)

const (
	slowAnswer = 5 * time.Second // half of what a receiver has
	oldBy      = time.Hour       // far beyond the five minutes of the standard
	longest    = 1024            // bytes of platform_user_id
	slowPieces = 16
	// defaultSlowPause makes a slow request take about a second: longer than a late packet, shorter than any
	// timeout.
	defaultSlowPause = 75 * time.Millisecond
)

// unusual is text that the contract allows in an id and that has broken receivers: quotes, angle brackets, an
// escape, a line end, a line separator, right-to-left text with its marks, a letter of two code points, and
// an emoji of several.
const unusual = "a\"'<b>\\n\n\u2028\u202eעברית\u202c e\u0301 👩‍👩‍👧 "

// Why a failed check matters.
const (
	whyAnother = "Anybody who knows the URL could verify anybody. Check webhook-signature first, and " +
		"answer 401 if it is wrong."
	whyChanged = "The signature has to be verified over the body, byte for byte as it arrived; it seems " +
		"to be read, but not computed."
	whyOld = "Anyone who obtains one callback could send it again forever. Refuse a webhook-timestamp " +
		"more than 5 minutes off."
	whyTwo = "During a rotation of the signing secret there are two, separated by a space: one match is " +
		"enough, whichever it is."
	whyPair = "Beside the secret's signature, v1, each callback carries one by the account's key pair, " +
		"v1a: check those of the version that you know, and ignore the others."
	whySlow = "The request came in %d pieces within %.1f s. Read the body to its end: networks " +
		"are slow at times."
)

// checks returns all checks, in order.
func checks(another string, slowPause time.Duration) []check {
	one := func(change func(p *callback.Probe)) func(callback.Probe) []callback.Probe {
		return func(p callback.Probe) []callback.Probe {
			change(&p)
			return []callback.Probe{p}
		}
	}
	pair := "whsk_" + strings.TrimPrefix(another, "whsec_") // a seed has 32 bytes too
	return []check{
		{"A valid callback", one(func(*callback.Probe) {}),
			taken("Every callback like this one is recorded as rejected, and not sent again automatically.")},
		{
			"verified: false", one(func(p *callback.Probe) { p.Verified = false }),
			taken("A user who declined is a result like any other: accept it, and do not wait for another."),
		},
		{
			"A signature made with another secret",
			one(func(p *callback.Probe) { p.Secrets = []string{another} }),
			refused(whyAnother),
		},
		{
			checkChanged, one(func(p *callback.Probe) { p.Verified, p.Change = false, changed }),
			refused(whyChanged),
		},
		{checkUnsigned, one(func(p *callback.Probe) { p.Unsigned = true }),
			refused("A callback without a signature has to be refused like one with a wrong one.")},
		{"A timestamp of an hour ago", one(func(p *callback.Probe) { p.At = p.At.Add(-oldBy) }),
			refused(whyOld)},
		{
			checkKnownLast, one(func(p *callback.Probe) { p.Secrets = []string{another, p.Secrets[0]} }),
			taken(whyTwo),
		},
		{
			checkKnownFirst, one(func(p *callback.Probe) { p.Secrets = []string{p.Secrets[0], another} }),
			taken(whyTwo),
		},
		{"A signature by a key pair in addition",
			one(func(p *callback.Probe) { p.Secrets = append(p.Secrets, pair) }), taken(whyPair)},
		{"The same webhook-id again",
			func(p callback.Probe) []callback.Probe { return []callback.Probe{p, p} }, repeated},
		{
			"A header that nobody knows", one(func(p *callback.Probe) { p.Headers["x-later"] = "1" }),
			taken("Proxies add headers, and a later version may: that is no reason to refuse a callback."),
		},
		{
			"Ids of unusual characters",
			one(func(p *callback.Probe) { p.PlatformUserID, p.GuildID = unusual, unusual }),
			strange("quotes, line ends, emoji and right-to-left text"),
		},
		{
			"The longest id",
			one(func(p *callback.Probe) { p.PlatformUserID = strings.Repeat("é", longest/2) }),
			strange(fmt.Sprintf("an id of %d bytes", longest)),
		},
		{
			"A slow sender", one(func(p *callback.Probe) { p.Pieces, p.Pause = slowPieces, slowPause }),
			taken(fmt.Sprintf(whySlow, slowPieces, (slowPieces * slowPause).Seconds())),
		},
		{"GET", one(func(p *callback.Probe) { p.Method, p.Unsigned = http.MethodGet, true }), idle},
		{"HEAD", one(func(p *callback.Probe) { p.Method, p.Unsigned = http.MethodHead, true }), idle},
	}
}

// changed inverts the outcome, as an attacker would who wants to be verified.
func changed(body []byte) []byte {
	return bytes.Replace(body, []byte(`"verified":false}`), []byte(`"verified":true}`), 1)
}

// taken judges a callback that must be answered with a 2xx.
func taken(why string) func([]callback.Answer) (Outcome, string) {
	return func(answers []callback.Answer) (Outcome, string) {
		a := answers[0]
		switch {
		case a.Verdict == facts.VerdictDelivered && a.Timing.FirstByte > slowAnswer:
			return Look, "A callback has 10 seconds in total, by default. Store the result, answer, and do " +
				"the work afterwards."
		case a.Verdict == facts.VerdictDelivered:
			return Pass, ""
		case a.Status >= 300 && a.Status < 400:
			return Fail, "Redirects are not followed: use the final address as callback_url."
		case a.Status == 0:
			return Fail, "No status line came back, so nobody knows whether the result arrived. " + why
		}
		return Fail, why
	}
}

// refused judges a request that must not be answered with a 2xx.
func refused(why string) func([]callback.Answer) (Outcome, string) {
	return func(answers []callback.Answer) (Outcome, string) {
		switch a := answers[0]; {
		case a.Verdict == facts.VerdictDelivered:
			return Fail, why
		case a.Status == 0:
			return Look, "It was not accepted, but there was no answer either: a 401 says more."
		case a.Status >= 500:
			return Look,
				"It was not accepted, but a 5xx looks like a fault of the receiver: a 401 says what it is."
		}
		return Pass, ""
	}
}

func repeated(answers []callback.Answer) (Outcome, string) {
	if outcome, why := taken("")(answers[:1]); outcome == Fail {
		return outcome, strings.TrimSpace("The first of the two was not accepted. " + why)
	}
	if outcome, _ := taken("")(answers[1:]); outcome == Fail {
		return Fail, "A result that is sent again is the same result: answer 200 and do nothing, or it " +
			"stays rejected forever."
	}
	return Look, "Both were accepted. Check in your own data that the result was applied once: the same " +
		"webhook-id is the same result."
}

func strange(what string) func([]callback.Answer) (Outcome, string) {
	return func(answers []callback.Answer) (Outcome, string) {
		switch a := answers[0]; {
		case a.Verdict == facts.VerdictDelivered:
			return Pass, ""
		case a.Status >= 400 && a.Status < 500:
			return Look, "Ids are what you give at the start: if yours never contain " + what +
				", this is fine."
		}
		return Fail, "The receiver fails at " + what + ", which an id may contain."
	}
}

func idle(answers []callback.Answer) (Outcome, string) {
	switch a := answers[0]; {
	case a.Verdict == facts.VerdictDelivered:
		return Look, "Callbacks come by POST. Make sure that other methods change nothing: chat " +
			"applications and scanners open every address they see."
	case a.Status >= 500 && a.Status != http.StatusNotImplemented, a.Status == 0:
		return Look, "Callbacks come by POST; a 405 for other methods would say so."
	}
	return Pass, ""
}
