package api

import (
	"strings"
	"testing"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	for _, right := range []string{
		"", "order 4711", "#1/ä-漢字-🙂", strings.Repeat("x", 128), "e\u0301", `<b>"&`,
	} {
		if err := checkReference(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
	for wrong, says := range map[string]string{
		strings.Repeat("x", 129):      "it has 129 bytes",
		strings.Repeat("ä", 64) + "x": "it has 129 bytes",
		"a\nb":                        "byte 1 begins U+000A",
		"a\x00":                       "byte 1 begins U+0000",
		"ä\u202eb":                    "byte 2 begins U+202E",
		"\u200b":                      "U+200B",
		"a\u00a0b":                    "U+00A0",
		"\xff":                        "U+FFFD",
	} {
		err := checkReference(wrong)
		if err == nil || !strings.Contains(strings.Replace(err.Error(), "the field", "it", 1), says) {
			t.Errorf("%q: %v, which does not say %q", wrong, err, says)
		}
	}
}

func TestLocales(t *testing.T) {
	t.Parallel()
	for _, right := range []string{
		"de", "pt-BR", "zh-Hant-TW", "DE-at", "xx", "tlh", "de-CH-1901",
		"sl-rozaj-biske", "x-whatever", "en-u-ca-gregory",
		"i-klingon", "und", "qaa-ZZ",
	} {
		if err := checkLocale(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
	for _, wrong := range []string{
		"", "pt_BR", "d", "de-", "-de", "german language", "de;q=0.5", "en,de", "*", "de-a", "überall",
		"en-\x00",
		strings.Repeat("de-", 20) + "de",
	} {
		if err := checkLocale(wrong); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
