package signin

import (
	"net/http/httptest"
	"testing"
)

const (
	iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, " +
		"like Gecko) "
	pixel = "Mozilla/5.0 (Linux; Android 15; Pixel 8 Build/AP3A; wv) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Version/4.0 Chrome/131.0.6778.39 Mobile Safari/537.36"
	desktop = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
)

// The names of apps by the User-Agent of their own browsers; an empty name is an app that does not say which
// it is.
var insideAgents = map[string]string{
	iphone + "Mobile/22B83 [FBAN/FBIOS;FBAV/489.0.0.40.109;FBBV/660;FBDV/iPhone16,1]":         "Facebook",
	pixel + " [FB_IAB/FB4A;FBAV/453.0.0.40.107;]":                                             "Facebook",
	iphone + "Mobile/22B83 [FBAN/MessengerForiOS;FBAV/480.0.0;FBDV/iPhone16,1]":               "Messenger",
	pixel + " [FB_IAB/Orca-Android;FBAV/480.0.0;]":                                            "Messenger",
	iphone + "Mobile/22B83 Instagram 358.0.2.30.106 (iPhone16,1; iOS 18_1; de_DE; de)":        "Instagram",
	pixel + " Instagram 358.0.0.51.93 Android (35/15; 420dpi; 1080x2400; Google)":             "Instagram",
	iphone + "Mobile/22B83 Barcelona 358.0.2 (iPhone16,1; iOS 18_1; de_DE)":                   "Threads",
	iphone + "Mobile/22B83 Safari Line/14.19.1":                                               "LINE",
	pixel + " Line/14.19.1/IAB":                                                               "LINE",
	iphone + "Mobile/22B83 MicroMessenger/8.0.54(0x18003631) NetType/WIFI Language/zh_CN":     "WeChat",
	iphone + "Mobile/22B83 musical_ly_37.0.0 JsSdk/2.0 NetType/WIFI BytedanceWebview/d8a21c6": "TikTok",
	pixel + " trill_370004 BytedanceWebview/d8a21c6":                                          "TikTok",
	iphone + "Mobile/22B83 Snapchat/13.17.0.41 (like Safari/8619.2.8.10.7, panda)":            "Snapchat",
	pixel + " Telegram-Android/11.4.2 (Google Pixel 8; Android 15; SDK 35; HIGH)":             "Telegram",
	pixel + " TwitterAndroid":                                                        "X",
	iphone + "Mobile/22B83 Twitter for iPhone/10.67":                                 "X",
	desktop + "discord/1.0.9170 Chrome/128.0.6613.186 Electron/32.2.2 Safari/537.36": "Discord",
	iphone + "Mobile/22B83 Discord/256.0":                                            "Discord",
	iphone + "Mobile/22B83 [LinkedInApp]/9.30.1":                                     "LinkedIn",
	iphone + "Mobile/22B83 [Pinterest/iOS]":                                          "Pinterest",
	pixel + ";KAKAOTALK 2610930":                                                     "KakaoTalk",
	pixel:                                                                            "",
	iphone + "Mobile/22B83":                                                          "",
	"Mozilla/5.0 (iPad; CPU OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Mobile/15E148": "",
}

// outsideAgents are independent browsers.
var outsideAgents = []string{
	iphone + "Version/18.1 Mobile/15E148 Safari/604.1",
	iphone + "CriOS/131.0.6778.73 Mobile/15E148 Safari/604.1",
	iphone + "FxiOS/132.0 Mobile/15E148 Safari/605.1.15",
	"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile " +
		"Safari/537.36",
	"Mozilla/5.0 (Linux; Android 15; SM-S921B) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"SamsungBrowser/27.0 Chrome/125.0.0.0 Mobile Safari/537.36",
	"Mozilla/5.0 (Android 15; Mobile; rv:132.0) Gecko/132.0 Firefox/132.0",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/18.1 Safari/605.1.15",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:132.0) Gecko/20100101 Firefox/132.0",
	desktop + "Chrome/131.0.0.0 Safari/537.36", desktop + "Chrome/131.0.0.0 Safari/537.36 Edg/131.0.0.0",
	"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 " +
		"Safari/537.36",
}

// PreviewAgents are the User-Agents of programs that render link previews or crawl.
var PreviewAgents = []string{
	"Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 11.6; rv:92.0) Gecko/20100101 Discordbot/2.0",
	"Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
	"Slackbot 1.0 (+https://api.slack.com/robots)",
	"Slack-ImgProxy (+https://api.slack.com/robots)",
	"TelegramBot (like TwitterBot)", "WhatsApp/2.23.20.0", "WhatsApp/2", "WhatsApp/2.2451.5 W",
	"facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
	"facebookexternalhit/1.1;line-poker/1.0", "Facebot",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_11_1) AppleWebKit/601.2.4 (KHTML, like Gecko) " +
		"Version/9.0.1 Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0",
	"meta-externalagent/1.1 (+https://developers.facebook.com/docs/sharing/webmasters/crawler)",
	"Twitterbot/1.0", "LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)",
	"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
	"Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/131.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)",
	"Mozilla/5.0 (Windows NT 6.1; WOW64) SkypeUriPreview Preview/0.5 skype-url-preview@microsoft.com",
	"Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 " +
		"Safari/537.36 BingPreview/1.0b",
	"Snap URL Preview Service; bot; snapchat; https://developers.snap.com/robots",
	"Mozilla/5.0 (compatible; redditbot/1.0; +http://www.reddit.com/feedback)",
	"Viber/13.3.0.4 CFNetwork/1240 Darwin/20.5.0",
	"http.rb/5.1.1 (Mastodon/4.2.1; +https://mastodon.social/) Bot",
	"Synapse (bot; +https://github.com/matrix-org/synapse)",
	"Mozilla/5.0 (compatible; ZulipURLPreview/1.0; +https://chat.zulip.org)",
	"facebookexternalhit/1.1; kakaotalk-scrap/1.0; +https://devtalk.kakao.com/",
	"Mozilla/5.0 (compatible; vkShare; +http://vk.com/dev/Share)",
	"Mozilla/5.0 (compatible; Pinterestbot/1.0; +http://www.pinterest.com/bot.html)",
}

func TestAgents(t *testing.T) {
	ask := func(agent string) (in app, inside, preview, opened bool) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User-Agent", agent)
		in, inside = appOf(r)
		return in, inside, previews(r), opens(r)
	}
	for agent, want := range insideAgents {
		if in, inside, preview, opened := ask(agent); in.name != want || !inside || preview || !opened {
			t.Errorf("%s\nis in %q (%v), draws previews: %v, opens: %v; want %q", agent, in.name, inside,
				preview, opened, want)
		}
	}
	for _, agent := range outsideAgents {
		if in, inside, preview, opened := ask(agent); inside || preview || !opened {
			t.Errorf("%s\nis in %q (%v), draws previews: %v, opens: %v", agent, in.name, inside, preview,
				opened)
		}
	}
	for _, agent := range PreviewAgents {
		if _, inside, preview, opened := ask(agent); inside || !preview || opened {
			t.Errorf("%s\ninside: %v, draws previews: %v, opens: %v", agent, inside, preview, opened)
		}
	}
	for _, agent := range []string{"", "curl/8.10.1", "Go-http-client/1.1", "Mozilla"} {
		if _, inside, preview, opened := ask(agent); inside || preview || opened {
			t.Errorf("%q\ninside: %v, draws previews: %v, opens: %v", agent, inside, preview, opened)
		}
	}
}

func TestAPageFetchedAheadIsNotOpened(t *testing.T) {
	for header, value := range map[string]string{"Sec-Purpose": "prefetch;prerender", "Purpose": "prefetch"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User-Agent", outsideAgents[0])
		if r.Header.Set(header, value); opens(r) {
			t.Errorf("%s: %s counts as opened", header, value)
		}
	}
}
