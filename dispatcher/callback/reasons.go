package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"verifyd/sessions/failure"
	"verifyd/sessions/urlpolicy"
)

// The subjects of the sentences.
const (
	theReceiver = "the receiver"
	theProxy    = "the egress proxy"
)

// wantsCertificate follows on how a receiver that has asked for a client certificate broke the TLS session.
const wantsCertificate = "; it has asked for a client certificate, and verifyd has none"

// dnsReason describes why a name yielded no address.
func dnsReason(err error, host string) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled):
		return "stopped while " + host + " was being resolved"
	case errors.As(err, &dns) && dns.IsNotFound:
		return host + " has no address: the name does not exist, or nothing is published for it"
	case isTimeout(err):
		return "the name servers did not answer for " + host + " in time"
	}
	return "the name servers failed to answer for " + host
}

// connectReason describes why no address yielded a connection, and whether that was policy or the network.
func connectReason(err error, host string, budget time.Duration) (failure.Class, string) {
	refused, failed := partition(err)
	if len(failed) == 0 && len(refused) > 0 {
		return failure.RefusedAddress,
			fmt.Sprintf("%s may not be reached: %s", host, policyReason(refused[0]))
	}
	err = errors.Join(failed...) // the addresses that may be reached are the ones worth explaining
	switch {
	case !slices.ContainsFunc(failed, func(err error) bool { return !errors.Is(err, ErrAddressBusy) }):
		return failure.Late,
			fmt.Sprintf("the maximum number of callbacks to the address of %s is in progress, and none of "+
				"them ended in time", host)
	case errors.Is(err, context.Canceled):
		return failure.Connect, "stopped while connecting to " + host
	case worstOf(failed) != nil:
		return proxyReason(worstOf(failed), host, budget)
	case isTimeout(err):
		return failure.Connect, fmt.Sprintf("%s did not accept a connection within %v", host, budget)
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure.Connect, host + " refused the connection: nothing listens on that port"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return failure.Connect, "there is no route to " + host
	}
	return failure.Connect, host + " could not be connected to"
}

// worstOf returns the fault of the egress proxy that best explains why there is no tunnel; nil if there is
// none. A fault of its own comes first, since that kept addresses from being tried; then an address that it
// could not reach, then one that its rules refuse.
func worstOf(failed []error) *proxyFault {
	var worst *proxyFault
	for _, err := range failed {
		switch f, ok := errors.AsType[*proxyFault](err); {
		case !ok:
		case f.own():
			return f
		case worst == nil || isUnreached(f.status):
			worst = f
		}
	}
	return worst
}

// isUnreached reports whether a proxy's status means that it could not reach the receiver. Squid answers 503,
// also for addresses without a route; envoy 503; smokescreen 502 and 504.
func isUnreached(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout
}

// proxyReason describes why the egress proxy opened no tunnel, and whether the cause was the proxy or, as the
// proxy reports, the receiver.
func proxyReason(f *proxyFault, host string, budget time.Duration) (failure.Class, string) {
	switch {
	case isUnreached(f.status):
		return failure.Connect,
			fmt.Sprintf("the egress proxy could not reach %s: it answered %s", host, statusText(f.status))
	case f.status == http.StatusProxyAuthRequired: // smokescreen's answer for a destination that it refuses
		return failure.Proxy, "the egress proxy wants other credentials, or refuses " + host +
			" so: it answered " + statusText(f.status)
	case f.status == http.StatusForbidden:
		return failure.Proxy,
			"the egress proxy's rules refuse " + host + ": it answered " + statusText(f.status)
	case f.status != 0:
		return failure.Proxy,
			"the egress proxy gave no tunnel to " + host + ": it answered " + statusText(f.status)
	case f.during == connecting:
		return failure.Proxy, proxyConnectReason(f.err, budget)
	case f.during == handshaking:
		return failure.Proxy, tlsReason(f.err, theProxy, "the host it is configured with")
	}
	return failure.Proxy, proxyAskReason(f.err, host, budget)
}

func proxyConnectReason(err error, budget time.Duration) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "the egress proxy's name did not resolve"
	case isTimeout(err):
		return fmt.Sprintf("the egress proxy did not accept a connection within %v", budget)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the egress proxy refused the connection: nothing listens on that port"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "there is no route to the egress proxy"
	}
	return "the egress proxy could not be connected to"
}

func proxyAskReason(err error, host string, budget time.Duration) string {
	var garbage *protocolError
	switch {
	case errors.As(err, &garbage):
		return garbage.Error()
	case isTimeout(err): // it may be waiting itself: then its own time-out is longer than ours
		return fmt.Sprintf("the egress proxy did not say within %v whether it reached %s", budget, host)
	case isEnd(err):
		return "the egress proxy closed the connection before it gave a tunnel"
	}
	return "the egress proxy broke the connection before it gave a tunnel"
}

// partition sorts the joined errors of connect into the policy's refusals and the network's failures.
func partition(err error) (refused, failed []error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, e := range all {
		if errors.Is(e, urlpolicy.ErrRefusedAddress) {
			refused = append(refused, e)
		} else {
			failed = append(failed, e)
		}
	}
	return refused, failed
}

// policyReason returns the policy's own sentence without the text that net.Dialer adds.
func policyReason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return strings.TrimPrefix(err.Error(), urlpolicy.ErrRefusedAddress.Error()+": ")
}

// tlsReason describes why there is no TLS session with who, whose certificate must be for host.
func tlsReason(err error, who, host string) string {
	if reason := certificateReason(err, who, host); reason != "" {
		return reason
	}
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &record):
		return "what listens on " + who + "'s port does not speak TLS"
	case errors.As(err, &op) && op.Op == "remote error":
		return who + " refused the TLS session: " + strings.TrimPrefix(op.Err.Error(), "tls: ")
	case errors.Is(err, context.Canceled):
		return "stopped during the TLS handshake"
	case isTimeout(err):
		return who + " did not finish the TLS handshake in time"
	case isEnd(err):
		return who + " closed the connection during the TLS handshake"
	}
	return "the TLS handshake with " + who + " failed: " + strings.TrimPrefix(Printable(err.Error()), "tls: ")
}

// certificateReason returns what is wrong with a certificate; empty if err is about something else.
func certificateReason(err error, who, host string) string {
	var (
		invalid   x509.CertificateInvalidError
		wrongHost x509.HostnameError
		authority x509.UnknownAuthorityError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return validityReason(who, invalid.Cert, time.Now())
	case errors.As(err, &wrongHost):
		return who + "'s certificate is for " + namesOf(wrongHost.Certificate) + ", not for " + host
	case errors.As(err, &authority):
		return who + "'s certificate is not signed by an authority that is trusted here"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return who + "'s certificate does not verify: " +
			strings.TrimPrefix(Printable(unwrapVerify(err).Error()), "x509: ")
	}
	return ""
}

func unwrapVerify(err error) error {
	if verify, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return verify.Err
	}
	return err
}

func validityReason(who string, cert *x509.Certificate, now time.Time) string {
	const day = "2 January 2006"
	if now.Before(cert.NotBefore) {
		return who + "'s certificate is not valid before " + cert.NotBefore.UTC().Format(day)
	}
	return who + "'s certificate expired on " + cert.NotAfter.UTC().Format(day)
}

// namesOf lists the first hosts that a certificate is for.
func namesOf(cert *x509.Certificate) string {
	const limit = 3
	var names []string
	for _, name := range cert.DNSNames {
		names = append(names, Printable(name))
	}
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0:
		return "no host at all"
	case len(names) > limit:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
	}
	return strings.Join(names, ", ")
}

// Printable bounds text that comes from outside and keeps terminals and log readers safe from it.
func Printable(s string) string {
	const limit = 255 // longer than any host name
	s = s[:min(len(s), limit)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isNotTLS reports whether the peer sent something that is no TLS record, or one that this session's keys do
// not open.
func isNotTLS(err error) bool {
	var record tls.RecordHeaderError
	var op *net.OpError
	return errors.As(err, &record) || errors.As(err, &op) && op.Op == "local error"
}

// isEnd reports whether the peer ended the connection, orderly or not.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}
