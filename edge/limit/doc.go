// Package limit decides how many sessions may be started, a rate per API key and a monthly quota per account,
// and how often a user may try to sign in.
//
// The law:
//
//   - The rate is GCRA, as a pure core (Decide) with the time as an argument. In any window of length t a key
//     gets at most Burst + Count·t/Per sessions: rounding is always towards fewer. The edges of a service
//     share it: each sends the others what it allowed, within milliseconds and without any request waiting
//     for it, and adds what they allowed to its own count (Sharing). Units that several edges allowed at the
//     same moment are a debt, which is paid back before anything more is allowed. Without a connection an
//     edge goes on with what it knows.
//   - Keys that are not valid are limited by address (Failures): an IPv4 address, or an IPv6 network of 64
//     bits. It is kept per process and bounded in memory. Valid keys are not affected.
//   - Attempts at identity networks are limited by address and by session (Attempts), each step of each trip
//     by itself. It is kept per process and bounded in memory. For IPv6, all networks of a 48-bit site
//     together have as much as eight of them. A return that the network vouched for gives its unit back.
//     Codes that came to a browser that did not begin are stored as spent within a bound of their own.
//   - The quota is exact over any number of edges. One counter per account and UTC month lives in the stream
//     USAGE, and the acknowledgement of an increment carries the new total: a caller that reads a total above
//     the quota has no unit.
//   - Units are counted before they are used, never after. For an account that starts many sessions they are
//     counted in blocks. A block is as large as the account's use in the last quarter of a second, at most
//     1,000 and at most 1/128 of the units left. Units that are not used within a second go back, and all of
//     them at a stop. A crash can cost an account one such block.
//   - A unit in doubt counts as used. No answer, a crash or a lost give-back may cost an account a unit;
//     nothing hands out more than the quota.
//   - A refusal is cheap: an account that is over its quota is not looked up again for a second.
package limit
