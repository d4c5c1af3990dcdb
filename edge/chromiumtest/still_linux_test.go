package chromiumtest

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"verifyd/natsconf/natstest/prove"
)

// Addresses of the machine appear and disappear while the browser connects, as with containers. It does not
// notice.
func TestAddressesOfTheMachineComeAndGo(t *testing.T) {
	prove.Only(t, "browser", "it adds addresses to this machine, as root")
	ip := prove.Program(t, "ip, which Debian has in iproute2", "ip")
	link := fmt.Sprintf("vt%d", os.Getpid())
	change := func(args ...string) {
		if out, err := exec.Command(ip, args...).CombinedOutput(); err != nil {
			t.Errorf("ip %v: %v: %s", args, err, out)
		}
	}
	if out, err := exec.Command(ip, "link", "add", link, "type", "bridge").CombinedOutput(); err != nil {
		t.Fatalf("this proof needs the right to add a bridge, as root has it: %v: %s", err, out)
	}
	defer change("link", "delete", link)
	change("link", "set", link, "up")
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><p>whole</p>`)
	}))
	site.Config.SetKeepAlivesEnabled(false)
	site.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		change("address", "replace", "192.0.2.77/32", "dev", link)
		change("address", "flush", "dev", link)
		return site.TLS, nil
	}}
	site.StartTLS()
	defer site.Close()
	tab := Start(t, Trust(site.Certificate()))
	for range 5 {
		Do(tab, t, chromedp.Navigate(site.URL))
		if read := Text(tab, t, "p"); read != "whole" {
			t.Fatalf("the browser reads %q", read)
		}
	}
}
