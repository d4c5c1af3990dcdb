package embedded

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
)

const (
	// defaultStoreBytes is the default size limit of the embedded store.
	defaultStoreBytes = 8 << 30
	// serverReady bounds the start of the embedded server, recovery of the store included.
	serverReady = 60 * time.Second
	// EndpointFile holds, inside the data directory, where the embedded server listens and the credential
	// for it.
	EndpointFile = "nats.json"
	lockFile     = "lock"
	storeFolder  = "nats"
)

// ErrLocked is returned if another process holds the data directory.
var ErrLocked = errors.New("the data directory is in use by another verifyd")

// Options configure the embedded server.
type Options struct {
	DataDir    string // made with mode 0700 when missing
	Sync       SyncMode
	StoreBytes int64 // size limit of the store; defaultStoreBytes when zero
	Log        zerolog.Logger
}

// SyncMode is when the embedded store syncs to the disk.
type SyncMode string

// The two modes. SyncInterval risks what was acknowledged in the last two minutes, if the machine loses
// power.
const (
	SyncAlways   SyncMode = "always"
	SyncInterval SyncMode = "interval"
)

// files are the files of a store. They are checked against what they must have before a server opens them.
type files struct {
	dataDir    string
	sync       SyncMode
	log        zerolog.Logger
	recovering bool // a recovery opened them
	witnessing sync.Mutex

	settling  settling
	inspected bool              // they were checked against what they must have
	minLast   map[string]uint64 // the last sequence that each stream must have
	counted   *mark             // the counters that there must be
	// how long the streams kept their messages whose settings must be made anew
	keep map[string]time.Duration
}

// Endpoint is the content of EndpointFile: how the operator's commands and the nats tool reach a running
// embedded server.
type Endpoint struct {
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
	PID      int    `json:"pid"`
}

// Server is the actor that owns the embedded NATS server and the data directory. It may be served again after
// it stopped: the port and the credential stay the same, so that connections can reconnect.
type Server struct {
	files
	losses

	storeBytes int64
	lock       *flock.Flock
	endpoint   Endpoint
	port       int

	failed    chan error    // receives what Fail was called with
	probe     *probe        // of the data directory's filesystem
	latch     *latch        // the first failure to write
	gone      chan struct{} // closed if that was not a full disk
	abandoned sync.Once
	staging   *staging

	mu      sync.Mutex
	running *server.Server
	ready   chan struct{} // closed while running
}

// Open locks the data directory for this process. It returns ErrLocked if another process has it.
func Open(o Options) (*Server, error) {
	if o.StoreBytes == 0 {
		o.StoreBytes = defaultStoreBytes
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	// The store itself has no lock: two servers on it would corrupt it.
	lock := flock.New(filepath.Join(o.DataDir, lockFile))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if !got {
		return nil, fmt.Errorf("%w: %s", ErrLocked, o.DataDir)
	}
	probe, err := openProbe(o.DataDir)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("take the data directory: %w", err)
	}
	var secret [24]byte
	_, _ = rand.Read(secret[:])
	e := &Server{
		files:      files{dataDir: o.DataDir, sync: o.Sync, log: o.Log, keep: map[string]time.Duration{}},
		storeBytes: o.StoreBytes,
		lock:       lock,
		port:       server.RANDOM_PORT,
		endpoint: Endpoint{
			User: "verifyd", Password: base64.RawURLEncoding.EncodeToString(secret[:]), PID: os.Getpid(),
		},
		ready:   make(chan struct{}),
		failed:  make(chan error, 1),
		latch:   newLatch(),
		probe:   probe,
		gone:    make(chan struct{}),
		staging: newStaging(filepath.Join(o.DataDir, storeFolder)),
	}
	e.losses.files, e.losses.latch = &e.files, e.latch
	return e, nil
}

// HasStore reports whether a data directory holds a store already, which an earlier start made.
func HasStore(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, storeFolder))
	return err == nil
}

// HadStore reports whether a data directory holds a store, or did: one that was lost is damage.
func HadStore(dataDir string) bool {
	_, err := readWitness(dataDir)
	return err == nil || HasStore(dataDir)
}

// MayHoldStore reports whether a data directory holds a store, or is locked by a process that may be about to
// make one.
func MayHoldStore(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, lockFile))
	return err == nil || HasStore(dataDir)
}

// Close releases the data directory. Serve must have returned.
func (e *Server) Close() error {
	_ = os.Remove(filepath.Join(e.dataDir, EndpointFile))
	e.staging.close()
	e.probe.close()
	if err := e.lock.Close(); err != nil {
		return fmt.Errorf("release the data directory: %w", err)
	}
	return nil
}

// Limit returns the size limit of the store, in bytes.
func (e *Server) Limit() int64 { return e.storeBytes }

// Free returns the bytes that are left on the store's filesystem.
func (f *files) Free() (int64, error) { return FreeBytes(f.dataDir) }

// Credential returns whom the server lets in.
func (e *Server) Credential() (user, password string) { return e.endpoint.User, e.endpoint.Password }

// Abandoned returns a channel that is closed when the store has failed permanently.
func (e *Server) Abandoned() <-chan struct{} { return e.gone }

// Ready returns a channel that is closed while the server takes connections.
func (e *Server) Ready() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready
}

// InProcessConn returns a connection to the server that runs now, which after a restart is another one.
// nats.go asks again at each reconnect; a *server.Server handed to it would lead back to the stopped one
// forever.
func (e *Server) InProcessConn() (net.Conn, error) {
	ns, err := e.current()
	if err != nil {
		return nil, err
	}
	conn, err := ns.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("connect in process: %w", err)
	}
	return conn, nil
}

// current returns the server that runs now. Its error is ErrUnavailable.
func (e *Server) current() (*server.Server, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return nil, fmt.Errorf("embedded NATS server: %w", natsconf.ErrUnavailable)
	}
	return e.running, nil
}

// ReadEndpoint reads where the embedded server of a data directory listens.
func ReadEndpoint(dataDir string) (Endpoint, error) {
	var e Endpoint
	b, err := os.ReadFile(filepath.Join(dataDir, //nolint:gosec // the operator's own data directory
		EndpointFile))
	if err != nil {
		return e, fmt.Errorf("read the endpoint: %w", err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("read the endpoint: %w", err)
	}
	return e, nil
}

// writeEndpoint replaces the file as a whole: a reader sees the old endpoint or the new one. A file that is
// correct already is left, so that a server can be restarted on a full disk.
func writeEndpoint(path string, e Endpoint) error {
	if have, err := ReadEndpoint(filepath.Dir(path)); err == nil && have == e {
		return nil
	}
	b, err := json.MarshalIndent(e, "", //nolint:gosec // the credential is what this file is for; it is 0600
		"  ")
	if err != nil {
		return fmt.Errorf("encode the endpoint: %w", err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the endpoint: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write the endpoint: %w", err)
	}
	return nil
}
