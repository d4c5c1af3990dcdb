// Package base32 is the encoding of ids, and of hashes and hosts that become one word of a subject.
package base32

import "encoding/base32"

// Lower is base32 (RFC 4648 §6) in lower case, without padding.
var Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
