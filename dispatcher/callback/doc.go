// Package callback makes one attempt at the single POST (contract §6): guarded dial, exact bytes, signature,
// verdict.
//
// The rules:
//
//  1. Dial ends with a connection that is ready: name resolved, address allowed, TCP and TLS done. A failure
//     up to there is a NotSent: provably not one byte of a request left.
//  2. A request is prepared whole before it is sent, and handed over in one write. It is not written again:
//     there is no retry, no redirect, no proxy from the environment, no HTTP/2 and no replay, which is why
//     net/http's Transport is not used. A Probe, which tries a receiver and is no delivery, may be handed
//     over slowly.
//  3. The verdict falls at the final status line. 2xx is delivered, any other is rejected, and nothing that
//     follows it (endless headers, a hanging body, a reset) takes that back. If bytes left and no status line
//     came back, the verdict is unknown.
//  4. The wire counts what the kernel took. If a write failed and the count did not move, the attempt is
//     released: nothing left, and another attempt may follow. If even one byte left, it is unknown.
//  5. An attempt is bounded in every dimension: DNS, connect, TLS, the whole, informational responses,
//     header and body bytes.
//  6. Certificates are always verified, for the name in the URL, with TLS 1.2 or newer. There is no switch.
//  7. Through an egress proxy the same holds: the name is resolved and the address judged here, and the proxy
//     is asked for that address (CONNECT). TLS goes end to end through the tunnel. If the proxy fails,
//     nothing was sent, and it is not the receiver's fault.
//
// Verdicts:
//
//	Dial ──► NotSent{dns | refused_address | connect | proxy | tls}
//	  └────► Send ──► released{late | connect | protocol}      nothing left
//	              ├─► unknown{timeout | reset | protocol}      bytes left, no status line
//	              ├─► rejected{status}                         3xx, 4xx, 5xx
//	              └─► delivered                                2xx
//
// A Conn belongs to one goroutine. No text made here carries a URL's path or query, a signing secret, or
// words of the receiver other than the names in its certificate.
package callback
