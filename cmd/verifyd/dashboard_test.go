package main

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/chromiumtest"
	"verifyd/natsconf/natstest"
)

// visitor is a visitor of the dashboard, in Chromium.
type visitor struct {
	t   *testing.T
	r   *rig
	tab context.Context
}

func (v visitor) do(actions ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	chromiumtest.Do(v.tab, v.t, actions...)
}

func (v visitor) open(path string) { v.t.Helper(); v.do(chromedp.Navigate(v.r.Base + path)) }

// press clicks an element that leads to another page, and waits for that page, which may look the same.
func (v visitor) press(selector, then string) {
	v.t.Helper()
	v.do(chromiumtest.Leave(chromiumtest.Click(chromedp.CSS(selector))),
		chromedp.WaitVisible(chromedp.CSS(then)))
}

func (v visitor) write(selector, text string) {
	v.t.Helper()
	v.do(chromedp.SetValue(chromedp.CSS(selector), text))
}

func (v visitor) text(selector string) string {
	v.t.Helper()
	return chromiumtest.Run(v.tab, v.t, chromedp.TextContent(chromedp.CSS(selector)))
}

func (v visitor) reads(selector, want string) {
	v.t.Helper()
	if got := v.text(selector); !strings.Contains(got, want) {
		v.t.Errorf("%s reads %q, want %q", selector, got, want)
	}
}

// The whole path of an integrator, with a script and without: log in, make an account and a key, start a
// session with it, see its callback arrive, send it again, test the receiver, rotate the secret, roll and
// revoke the key.
func TestDashboardInChromium(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]bool{"with JavaScript": true, "without JavaScript": false} {
		t.Run(name, func(t *testing.T) {
			tab := chromiumtest.Start(t)
			v := visitor{t, boot(t), tab}
			if !script {
				v.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
					_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
						emulation.SetScriptExecutionDisabledParams{Value: true})
					return err
				}))
			}
			v.enroll()
			key := v.createKey()
			v.deliver(key, script)
			v.sign()
			v.face(script)
			v.endKey(key)
			v.logout()
		})
	}
}

// enroll logs in for the first time, and makes an account.
func (v visitor) enroll() {
	v.t.Helper()
	v.open("/dashboard")
	v.press(`button[name="network"]`, "#subject")
	v.write("#subject", "ada")
	v.press(`button[value="sign-in"]`, "#name")
	v.reads("h1", "Welcome, ada")
	v.write("#name", "Ada’s Guild")
	v.press("form button.main", ".steps")
	v.reads(".flash", "Your account is ready")
}

// face sets the branding, and views it as users do.
func (v visitor) face(script bool) {
	v.t.Helper()
	v.open("/dashboard/settings")
	v.press(`a[href$="/sign-in-page"]`, "#colour")
	v.do(chromiumtest.Click(chromedp.CSS(`[name="colour_own"]`)),
		chromiumtest.Click(chromedp.CSS(`[name="accent_own"]`)))
	v.write("#accent", "#ffd500")
	v.press(`form[action$="/look"] button`, "#accent-fault")
	v.reads("#accent-fault", "text needs 4.5:1")
	v.write("#accent", "#7a4100")
	v.press(`form[action$="/look"] button`, ".flash")
	v.do(chromedp.WaitVisible(chromedp.CSS(`.phones iframe[src*="state=ask"]`)))
	if script { // a colour is previewed while it is chosen
		v.do(chromedp.Evaluate[chromedp.Void](`
			const button = document.querySelector("#button");
			button.value = "#ffd500";
			button.dispatchEvent(new Event("input", {bubbles: true}));`))
		v.until(`document.querySelector(".phones iframe").contentDocument
			?.querySelector('link[href$="-ffd500.css"]') != null`)
	}
	v.do(chromedp.SetUploadFiles(chromedp.CSS("#logo"), []string{v.picture()}))
	v.press(`form[action$="/look"] button`, ".flash")
	v.open("/dashboard/sign-in-page")
	v.write("#return_origins", "https://harbor.example")
	v.press(`form[action$="/return-origins"] button`, ".flash")
	v.open("/dashboard/sign-in-page")
	v.write("#return_url", "https://harbor.example/done")
	v.press(`form[action$="/return-url"] button`, ".flash")
	v.open("/dashboard/sign-in-page/preview")
	v.reads("h1", "Is this you?")
	v.until(`document.querySelector("img.logo").naturalWidth === 288`)
	v.until(`getComputedStyle(document.documentElement).getPropertyValue("--action") === "#7a4100"`)
	v.open("/dashboard/sign-in-page")
	v.do(chromiumtest.Click(chromedp.CSS(`[name="no_logo"]`)))
	v.press(`form[action$="/look"] button`, ".flash")
	v.open("/dashboard/sign-in-page/preview")
	v.reads(".mark", "A")
	v.do(chromiumtest.Click(chromedp.CSS(`button[name="network"]`))) // does nothing
	v.open("/dashboard/sign-in-page/preview?state=verified&lang=de")
	v.reads(`a.button[href="https://harbor.example/done"]`, "Ada’s Guild")
}

// until waits until an expression is true on the page.
func (v visitor) until(expression string) {
	v.t.Helper()
	natstest.Await(v.t, expression, func() bool {
		return chromiumtest.Run(v.tab, v.t, chromedp.Evaluate[bool](expression))
	})
}

// picture returns a file to upload.
func (v visitor) picture() string {
	v.t.Helper()
	var b bytes.Buffer
	file := filepath.Join(v.t.TempDir(), "logo.png")
	if err := errors.Join(png.Encode(&b, image.NewGray(image.Rect(0, 0, 600, 150))),
		os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
		v.t.Fatal(err)
	}
	return file
}

var apiKeyForm = regexp.MustCompile(`vfy_[0-9A-Za-z]{38}`)

func (v visitor) createKey() string {
	v.t.Helper()
	v.press(".steps a.main", `input[name="mode"]`)
	v.write("#name", "production")
	v.press("form.card button.main", ".secret")
	key := apiKeyForm.FindString(v.text(".secret .code"))
	v.reads(".code.lines", "Bearer "+key)
	if key == "" {
		v.t.Fatal("no key is shown")
	}
	return key
}

// deliver starts a session with the key, watches its callback arrive, and sends it again.
func (v visitor) deliver(key string, live bool) {
	v.t.Helper()
	s := api{v.r.Base, key}.init(v.t, map[string]any{
		"platform": "discord", "platform_user_id": "grace", "callback_url": v.r.inbox.CallbackURL(),
	})
	v.open("/dashboard/sessions")
	v.press(".rows tbody th a", ".timeline")
	v.reads("h1", "pending")
	if live {
		v.do(chromedp.WaitVisible(chromedp.CSS(".live")))
	}
	b := demo.NewBrowser()
	must[*demo.Page](v.t)(b.Press(v.t.Context(), atProvider(v.t, b, s.VerifyURL), "sign-in"))
	<-v.r.inbox.got
	api{v.r.Base, key}.until(v.t, s.Session, "delivered")
	if !live {
		v.do(chromedp.Reload())
	}
	v.do(chromedp.WaitVisible(chromedp.CSS(".timeline li.good + li.good, .timeline li.good ~ li.good")))
	v.reads("h1", "verified delivered")
	answer := v.r.inbox.keepWaiting()
	v.press(`a[href$="/resend"]`, "button.main") // what was delivered is sent again after a confirmation
	v.press("button.main", ".flash")
	again := <-v.r.inbox.got
	answer()
	if live {
		v.do(chromedp.WaitVisible(chromedp.CSS(".timeline .fresh"))) // the page was rendered again
	}
	v.reads(".flash", "on its way again")
	if v.r.inbox.count(strings.TrimPrefix(again.Header.Get("Webhook-Id"), "cb_")) != 2 {
		v.t.Errorf("the second POST is %s", again.Header.Get("Webhook-Id"))
	}
}

// sign tests the receiver, and rotates the secret.
func (v visitor) sign() {
	v.t.Helper()
	v.open("/dashboard/signing")
	v.press(`form[action$="/reveal"] button`, ".secret .code")
	secret := v.text(".secret .code code")
	test := func() demo.Received {
		v.t.Helper()
		v.open("/dashboard/callbacks/test")
		v.write("#url", v.r.inbox.CallbackURL())
		v.press(`form[action$="/test"] button`, "#tested")
		v.reads("#tested", "delivered")
		v.reads("main", "Answer: 204")
		return <-v.r.inbox.got
	}
	verifies := func(got demo.Received, secret string) bool {
		return must[*standardwebhooks.Webhook](v.t)(standardwebhooks.NewWebhook(secret)).
			Verify(got.Body, got.Header) == nil
	}
	if got := test(); !verifies(got, secret) || !strings.HasPrefix(got.Header.Get("Webhook-Id"), "cbtest_") {
		v.t.Errorf("test callback %v", got.Header)
	}
	v.open("/dashboard/signing")
	v.press(`form[action$="/rotate"] button`, ".flash")
	v.reads("#rotate", "Rotation in progress")
	if got := test(); !verifies(got, secret) || // with each secret, and with the key pair of each
		len(strings.Fields(got.Header.Get("Webhook-Signature"))) != 4 {
		v.t.Errorf("during the overlap: %v", got.Header)
	}
	v.open("/dashboard/signing")
	v.press(`form[action$="/end"] button`, ".flash")
	if got := test(); verifies(got, secret) {
		v.t.Error("the old secret still signs")
	}
	v.write("#url", "https://10.1.2.3/hook")
	v.press(`form[action$="/test"] button`, "#url-fault")
}

// endKey rolls the key, and revokes both.
func (v visitor) endKey(key string) {
	v.t.Helper()
	v.open("/dashboard/keys")
	v.press(`a[href$="/roll"]`, "#grace")
	v.press("form.card button.main", ".secret")
	second := apiKeyForm.FindString(v.text(".secret .code"))
	for range 2 {
		v.open("/dashboard/keys")
		v.press(`a[href$="/revoke"]`, "button.danger.main")
		v.press("button.danger.main", ".flash")
		v.reads(".flash", "revoked")
	}
	for _, k := range []string{key, second} {
		api{v.r.Base, k}.gone(v.t)
	}
}

func (v visitor) logout() {
	v.t.Helper()
	v.open("/dashboard/settings")
	v.press(`input[name="everywhere"] + button`, `button[name="network"]`)
	v.reads(".flash", "logged out everywhere")
	v.open("/dashboard/keys")
	v.reads("h1", "Log in")
}

// A page that is kept up to date does not hold up the stop: a browser with such a page would keep the service
// for as long as it drains.
func TestOpenPagesDoNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	r := boot(t)
	owner := account.Member{Network: "dev", Subject: demo.User, Role: access.RoleOwner}
	a := must[account.Account](t)(r.Store.Accounts.AccountByName(t.Context(), "Harbor Guild"))
	must[account.Account](t)(r.Store.Accounts.AddMember(t.Context(), operator(), a.ID, owner))
	s := r.begin(t)
	var b *demo.Browser
	natstest.Await(t, "the edge knows the member", func() bool {
		b = demo.NewBrowser()
		p := must[*demo.Page](t)(b.Open(t.Context(), r.Base+"/dashboard/login"))
		p = must[*demo.Page](t)(b.Press(t.Context(), p, "dev"))
		p = must[*demo.Page](t)(b.Press(t.Context(), p, "sign-in"))
		return !strings.HasPrefix(p.Title(), "Welcome") // like a person without an account
	})
	response := must[*http.Response](t)(b.Request(t.Context(), http.MethodGet,
		r.Base+"/dashboard/sessions/"+r.api().read(t, s.Session).ID+"/live", nil))
	defer func() { _ = response.Body.Close() }()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("%d %s", response.StatusCode, got)
	}
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, response.Body); ended <- err }()
	r.stop()
	if err := <-ended; err != nil {
		t.Errorf("the stream was cut, not ended: %v", err)
	}
}
