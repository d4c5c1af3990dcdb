package naming

import (
	"slices"
	"strings"
	"sync"
	"unicode"
)

// reserved are the names that users would take for somebody they know: identity networks, the platforms that
// users come from, the service, and its operators.
const reserved = `
discord github gitlab google microsoft roblox steam twitch vatsim
apple amazon bluesky facebook instagram linkedin mastodon messenger meta minecraft mojang nintendo openai patreon paypal
playstation reddit signal skype slack snapchat spotify telegram tiktok twitter valve whatsapp xbox youtube
epicgames battlenet riotgames ubisoft ivao
verifyd verify verification verified
admin administrator administration helpdesk help mod moderator moderation official operator root security staff
support sysadmin system webmaster trustandsafety
`

// beside are words that do not make a reserved name different. By themselves they are free.
const beside = `
the of and by for account accounts app bot center centre check com corp hq id identity inc login net online org page
services service signin team user users 2 3 4 5 6 7 8 9
`

// words are the looks of the words of both lists; true: of a reserved name.
var words = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(beside) {
		all[LookOf(word)[0]] = false
	}
	for word := range strings.FieldsSeq(reserved) {
		all[LookOf(word)[0]] = true
	}
	return all
})

// IsReserved reports whether a name looks like a reserved one: whether it can be cut into words of both
// lists, of which one is reserved. "Discord Support" and "D1SC0RD.com" are, "Friends of Discord" is not.
func IsReserved(name string) bool {
	look := LookOf(name)
	return isReserved(look[0]) || isReserved(look[1])
}

// marks are the characters that look like the mark of a verified name.
const marks = "✓✔☑✅🗸🗹"

// claims reports whether a name looks verified by itself, in English.
func claims(name string) bool {
	words := strings.FieldsFunc(name, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N, unicode.M)
	})
	return strings.ContainsAny(name, marks) || slices.ContainsFunc(words, func(word string) bool {
		return LookOf(word).Like(LookOf("verified"))
	})
}

func isReserved(look string) bool {
	all := words()
	// plain and grave hold the bytes at which a word may end, without and with a reserved one before.
	plain, grave := make([]bool, len(look)+1), make([]bool, len(look)+1)
	plain[0] = true
	for end := 1; end <= len(look); end++ {
		for begin := range end {
			is, known := all[look[begin:end]]
			if known {
				plain[end] = plain[end] || plain[begin] && !is
				grave[end] = grave[end] || grave[begin] || plain[begin] && is
			}
		}
	}
	return grave[len(look)]
}
