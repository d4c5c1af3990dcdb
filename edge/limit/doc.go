// Package limit decides how many sessions may be started: a rate per API key and a monthly quota per account.
//
// The law:
//
//   - The rate is GCRA, as a pure core (Decide) with the time as an argument. In any window of length t a key gets at most
//     Burst + Count·t/Per sessions: rounding is always towards fewer. It is kept per process, in memory: behind n edges a key
//     gets at most n times its rate.
//   - The quota is exact over any number of edges. One counter per account and UTC month lives in the stream USAGE, and the
//     acknowledgement of an increment carries the new total: whoever reads a total above the quota has not got a unit.
//   - What is in doubt counts as used. No answer, a crash or a lost give-back may cost an account a unit; nothing hands out
//     more than the quota.
//   - A refusal is cheap: an account that is over its quota is not asked about again for a second.
package limit
