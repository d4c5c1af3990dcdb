package signin

import (
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// previewers are the names by which services that draw link previews, and search engines, call themselves in
// User-Agent. Compared without case, anywhere in the value.
//
// Sources: what each says of itself, linked in its own User-Agent or its developer pages, as collected by the
// lists isbot and crawler-user-agents.
var previewers = []string{
	// https://discord.com: link embeds
	"discordbot",
	// https://api.slack.com/robots: Slackbot, Slackbot-LinkExpanding
	"slackbot",
	// the same page
	"slack-imgproxy",
	// "TelegramBot (like TwitterBot)"
	"telegrambot",
	// https://developers.facebook.com/docs/sharing/webmasters/web-crawlers; iMessage and LINE (line-poker)
	// too
	"facebookexternalhit",
	// the same page
	"facebot",
	// the same page
	"facebookcatalog",
	// the same page
	"meta-externalagent",
	// the same page
	"meta-externalfetcher",
	// https://developer.x.com/en/docs/x-for-websites/cards: cards
	"twitterbot",
	// "LinkedInBot/1.0 (compatible; Mozilla/5.0; …)"
	"linkedinbot",
	// https://developers.google.com/search/docs/crawling-indexing/overview-google-crawlers
	"googlebot",
	// the same page
	"google-inspectiontool",
	// previews in Google's chats
	"google-pagerenderer",
	// the same page
	"googleother",
	// https://support.apple.com/119829
	"applebot",
	// https://www.bing.com/webmasters/help/which-crawlers-does-bing-use-8c184ec0
	"bingbot",
	// the same page
	"bingpreview",
	// Skype and Teams
	"skypeuripreview",
	// Teams and Outlook
	"microsoftpreview",
	// link thumbnails
	"redditbot",
	// https://help.pinterest.com/business/article/pinterestbot
	"pinterestbot",
	"vkshare",  // VK
	"viberbot", // Viber
	// "Snap URL Preview Service; bot; snapchat; https://developers.snap.com/robots"
	"snap url preview",
	// the same page
	"snapchatads",
	// KakaoTalk
	"kakaotalk-scrap",
	// LINE WORKS and Naver
	"yeti/",
	"line-poker", // LINE
	// "http.rb/5.1 (Mastodon/4.2; +https://…)"
	"mastodon/",
	// Matrix: "Synapse (bot; +https://github.com/matrix-org/synapse)"
	"synapse",
	"zulipurlpreview", // Zulip
	// Mattermost
	"mattermost-bot",
	// Rocket.Chat
	"rocket.chat",
	// https://embed.ly
	"embedly",
	// https://iframely.com
	"iframely",
	// search engines
	"yandexbot", "baiduspider", "duckduckbot", "petalbot", "bytespider", "ahrefsbot", "semrushbot",
	"gptbot", "chatgpt-user", "oai-searchbot", "claudebot", "perplexitybot", // readers for language models
}

// previewerStarts are those that differ from the apps of the same name only by beginning with it: an app's
// own browser begins with "Mozilla/". Signal draws previews as WhatsApp.
var previewerStarts = []string{"whatsapp/", "viber/", "slack/", "telegram/", "line/"}

// previews reports whether a request comes from something that draws link previews or crawls.
func previews(r *http.Request) bool {
	agent := strings.ToLower(r.UserAgent())
	for _, name := range previewers {
		if strings.Contains(agent, name) {
			return true
		}
	}
	for _, name := range previewerStarts {
		if strings.HasPrefix(agent, name) {
			return true
		}
	}
	return false
}

// opens reports whether a request is a person's browser opening a page: every browser's User-Agent begins so,
// for history's sake, and a page that is fetched ahead of a press (Sec-Purpose) has not been opened.
func opens(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.UserAgent(), "Mozilla/") && !previews(r) &&
		!strings.Contains(r.Header.Get("Sec-Purpose")+r.Header.Get("Purpose"), "prefetch")
}

// app is an app whose own browser is known by its User-Agent.
type app struct {
	name  string   // as people know it
	marks []string // parts of User-Agent, as written; any of them will do
	way   way
}

// way is how a link in an app's own browser gets to the system's.
type way int

const (
	byMenu way = iota // by hand only
	// on Android, by an intent address (https://developer.chrome.com/docs/android/intents)
	byIntent
	// by LINE's parameter openExternalBrowser=1
	// (https://developers.line.biz/en/docs/line-login/using-line-url-scheme/)
	byLine
)

// apps are recognised by the first match, so that those that also carry another's mark come before it.
// Telegram and X on iOS, and Discord and Slack everywhere by default, open Safari's view or a Chrome tab,
// which providers accept and which cannot be distinguished (https://zenn.dev/kecy/articles/f51851e42c4243
// compares the User-Agents of apps).
var apps = []app{
	{"Instagram", []string{"Instagram "}, byIntent},
	{"Messenger", []string{"FBAN/Messenger", "FB_IAB/MESSENGER", "FB_IAB/Orca-Android", "MessengerLite"},
		byIntent},
	{"Threads", []string{"Barcelona "}, byIntent},
	// https://51degrees.com/blog/importance-webview-detection
	{"Facebook", []string{"FBAN/", "FBAV/", "FB_IAB/"}, byIntent},
	{"LINE", []string{" Line/"}, byLine},
	{"WeChat", []string{"MicroMessenger/"}, byMenu},
	{"QQ", []string{" QQ/"}, byMenu},
	{"Weibo", []string{"Weibo"}, byMenu},
	{"KakaoTalk", []string{"KAKAOTALK"}, byMenu},
	{"TikTok", []string{"BytedanceWebview", "musical_ly", "TikTok", "trill_", "aweme"}, byMenu},
	{"Snapchat", []string{"Snapchat/", "Snapchat "}, byMenu},
	{"Discord", []string{"Discord/", "Discord-", "discord/"}, byMenu},
	{"Telegram", []string{"Telegram-Android/", "TelegramAndroid", "Telegram-iOS/", "Telegram/"}, byMenu},
	{"X", []string{"TwitterAndroid", "Twitter for iPhone", "Twitter for iPad"}, byMenu},
	{"LinkedIn", []string{"LinkedInApp"}, byMenu},
	{"Pinterest", []string{"[Pinterest/", "Pinterest for Android", "Pinterest for iOS"}, byMenu},
	{"Reddit", []string{"Reddit/"}, byMenu},
	{"Slack", []string{"Slack_SSB/", "Slack/"}, byMenu},
	{"VK", []string{"VKAndroidApp", "com.vk."}, byMenu},
}

// someApp is an app that does not say which it is.
var someApp = app{}

// appOf returns the app in whose own browser a request was made. Beside those that are known by name:
// Android's web view says "wv" (https://developer.chrome.com/docs/webview/overview), and iOS's lacks the
// "Safari/" that every browser there has.
func appOf(r *http.Request) (app, bool) {
	agent := r.UserAgent()
	if !strings.HasPrefix(agent, "Mozilla/") || previews(r) {
		return app{}, false
	}
	for _, a := range apps {
		for _, mark := range a.marks {
			if strings.Contains(agent, mark) {
				return a, true
			}
		}
	}
	apple := strings.Contains(agent, "iPhone;") || strings.Contains(agent, "iPad;")
	return someApp, strings.Contains(agent, "; wv)") || apple && !strings.Contains(agent, "Safari/")
}

func android(r *http.Request) bool { return strings.Contains(r.UserAgent(), "Android") }

// addInApp tells the user about the app's browser they are in, on the page of a pending session. to is the
// page's whole address.
func addInApp(v *view, r *http.Request, to string) {
	a, inside := appOf(r)
	if !inside || v.Kind != pageAsk.name {
		return
	}
	drawn, err := newCode(to)
	if err != nil {
		return // the address is too long for a code that a camera reads; the menu is left
	}
	v.InApp = &inApp{App: a.name, Code: drawn}
	v.values["app"] = a.name
	switch {
	case a.way == byLine:
		v.InApp.Open = template.URL(to + "&openExternalBrowser=1") //nolint:gosec // our own address
	case a.way == byIntent && android(r):
		scheme, rest, _ := strings.Cut(to, "://")
		v.InApp.Open = template.URL("intent://" + rest + "#Intent;scheme=" + scheme + //nolint:gosec // our own address

			";action=android.intent.action.VIEW;category=android.intent.category.BROWSABLE;end")
	}
}

// codeQuiet is the light edge that a QR code needs, in modules (ISO/IEC 18004 §6.3.8).
const codeQuiet = 4

// code is a QR code as the path of an SVG, one unit a module.
type code struct {
	Size int    // of the whole, with its edge
	Path string // of the dark modules
}

// newCode draws a text. Level M bears the scratches of a screen and keeps the modules large.
func newCode(text string) (code, error) {
	modules, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return code{}, fmt.Errorf("draw a code: %w", err)
	}
	n := modules.Bounds().Dx()
	var b strings.Builder
	for y := range n {
		for x := 0; x < n; {
			run := 0
			for x+run < n {
				if r, _, _, _ := modules.At(x+run, y).RGBA(); r != 0 {
					break
				}
				run++
			}
			if run > 0 {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", x+codeQuiet, y+codeQuiet, run, run)
			}
			x += max(run, 1)
		}
	}
	return code{n + 2*codeQuiet, b.String()}, nil
}
