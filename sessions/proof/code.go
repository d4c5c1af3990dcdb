package proof

import "strings"

// CodeLength is how many characters a code has: 30 bits, against at most MaxTries guesses.
const CodeLength = 6

// alphabet is Crockford's: no I, L, O and U, so that no character is mistaken for another.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// NewCode makes a code from the first CodeLength of random bytes.
func NewCode(random []byte) string {
	var code strings.Builder
	for _, b := range random[:CodeLength] {
		code.WriteByte(alphabet[b%32]) // 256 is a multiple of 32: each character is as likely as another
	}
	return code.String()
}

// ParseCode reads a code as people write it: in any case, with spaces and hyphens, with I and L for 1 and O
// for 0. It is not ok for text that cannot be a code, such as letters of other alphabets.
func ParseCode(s string) (code string, ok bool) {
	var b strings.Builder
	for _, c := range s {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		switch c {
		case ' ', '-':
			continue
		case 'I', 'L':
			c = '1'
		case 'O':
			c = '0'
		}
		if !strings.ContainsRune(alphabet, c) || b.Len() == CodeLength {
			return "", false
		}
		b.WriteRune(c)
	}
	return b.String(), b.Len() == CodeLength
}
