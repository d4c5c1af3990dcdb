package naming

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// known are the names that users would take for somebody they know: identity networks, the platforms that
// users come from, and the service.
const known = `
discord github gitlab google microsoft roblox steam twitch vatsim
apple amazon bluesky facebook instagram linkedin mastodon messenger meta minecraft mojang nintendo openai patreon paypal
playstation reddit signal skype slack snapchat spotify telegram tiktok twitter valve whatsapp xbox youtube
epicgames battlenet riotgames ubisoft ivao
verifyd verify verification verified
`

// roles are the names of those who run a service.
const roles = `
admin administrator administration helpdesk help mod moderator moderation official operator root security staff
support sysadmin system webmaster trustandsafety
`

// beside are words that do not make a reserved name different. By themselves they are free.
const beside = `
the of and by for account accounts app bot center centre check com corp gmbh hq id identity inc llc login ltd
net online org page services service signin sm team tm user users 2 3 4 5 6 7 8 9
`

// words are the looks of the words of both lists; true: of a reserved name.
var words = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(beside) {
		all[LookOf(word)[0]] = false
	}
	for word := range strings.FieldsSeq(known + roles) {
		all[LookOf(word)[0]] = true
	}
	return all
})

// IsReserved reports whether a name looks like a reserved one: whether it can be cut into words of the lists
// and names of own, of which one is reserved, or one of its words is the name of somebody known.
// "D1SC0RD.com" and "Friends of Discord" are, "Harbor Support" is not.
func IsReserved(name string, own ...string) bool {
	look, all := LookOf(name), words()
	if len(own) > 0 {
		all = maps.Clone(all)
	}
	for _, o := range own {
		for _, of := range LookOf(o) {
			all[of] = true
		}
	}
	return isReserved(look[0], all) || isReserved(look[1], all) ||
		slices.ContainsFunc(wordsOf(name), func(word string) bool {
			return slices.ContainsFunc(knownLooks(), LookOf(word).Like)
		})
}

// knownLooks are the looks of those who are known.
var knownLooks = sync.OnceValue(func() (looks []Look) {
	for word := range strings.FieldsSeq(known) {
		looks = append(looks, LookOf(word))
	}
	return looks
})

// wordsOf returns the words of a name as a reader may see them: what is between spaces and punctuation,
// between a small letter and a capital, and between letters and digits, and each run of such words as one.
func wordsOf(name string) (words []string) {
	var parts []string
	var before rune
	for _, r := range name {
		switch {
		case !unicode.In(r, unicode.L, unicode.N, unicode.M) && !strings.ContainsRune(likeLetters, r):
			r = ' '
		case before == 0, before == ' ', unicode.IsUpper(r) && !unicode.IsUpper(before),
			unicode.IsDigit(r) != unicode.IsDigit(before):
			parts = append(parts, string(r))
		default:
			parts[len(parts)-1] += string(r)
		}
		before = r
	}
	for i := range parts {
		for j := i + 1; j <= len(parts); j++ {
			words = append(words, strings.Join(parts[i:j], ""))
		}
	}
	return words
}

// likeLetters are characters that are read as letters.
const likeLetters = "|$@!"

// marks are the characters that look like the mark of a verified name.
const marks = "✓✔☑✅🗸🗹"

// claims reports whether a name looks verified by itself, in English.
func claims(name string) bool {
	return strings.ContainsAny(name, marks) || slices.ContainsFunc(wordsOf(name), func(word string) bool {
		return LookOf(word).Like(LookOf("verified"))
	})
}

func isReserved(look string, all map[string]bool) bool {
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
