package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"verifyd/natsconf/topology"
)

// Serve runs the server until ctx ends and its store is closed. Once the store has failed to write, for
// another reason than a full disk, this process does not use it again: the last writes, as the kernel still
// shows them, may not be on the disk.
func (e *Server) Serve(ctx context.Context) error {
	if e.isAbandoned() {
		abandon(e, func() {})
		e.saveSoon(ctx)
		<-ctx.Done()
		return ctx.Err()
	}
	e.latch.reset()
	if err := e.prepare(); err != nil {
		return err
	}
	ns, err := e.start()
	if err != nil {
		// Another process may have taken the port meanwhile. In-process connections need none, and commands
		// read the new one.
		e.port = server.RANDOM_PORT
		return err
	}
	stopped := make(chan struct{})
	go func() {
		ns.WaitForShutdown()
		close(stopped)
	}()
	if err := e.checkServed(ns); err != nil {
		// it is not tried again in this process
		e.latch.note(&Failure{Stream: "the start's check", At: time.Now(), Cause: err})
		ns.Shutdown()
		<-stopped
		return err
	}
	e.forgetFailure()
	e.StageInMemory() // the start has removed the links
	witnessed := e.witness(ns)
	e.setRunning(ns)
	defer e.setRunning(nil)
	defer witnessed()
	var cause error
	select {
	case <-ctx.Done():
		cause = ctx.Err()
	case cause = <-e.failed:
	case <-e.Failed():
		cause = e.Failure()
		if e.isAbandoned() {
			abandon(e, witnessed)
			// the server itself goes on, so that commands can ask this process for its state
			_ = ns.ShutdownJetStream()
			e.saveSoon(ctx) // what a reader has found meanwhile, too
			<-ctx.Done()
		}
	case <-stopped:
		return errors.New("the embedded NATS server stopped by itself")
	}
	marks, _ := marksOf(ns)
	ns.Shutdown() // it closes the store; only if we wait does the next start find it closed
	<-stopped
	closed(e, marks, ctx.Err() != nil, witnessed)
	return cause
}

// closed records what a server that has closed its store held. Clients were gone before: the program stops
// the server last. ended: the process ends.
func closed(e *Server, marks []mark, ended bool, witnessed func()) {
	if e.Failure() == nil {
		e.remember(marks)
	}
	if e.isAbandoned() { // since the end began
		abandon(e, witnessed)
	}
	if ended {
		witnessed()
		e.saveCleanWitness(marks)
	}
}

// abandon tells, once, that the store has failed permanently, and records what is lost. It tells first: the
// end of the witness, which the record waits for, may hang on the disk that has failed.
func abandon(e *Server, witnessed func()) {
	e.abandoned.Do(func() {
		close(e.gone)
		failure, _ := e.latch.get() // not Failure, which asks the disk
		e.log.Error().Err(failure).Msg("the store has failed")
	})
	witnessed()
	if err := e.save(); err != nil {
		e.log.Warn().Err(err).Msg("the store's witness could not be written")
	}
}

// isAbandoned reports whether the store has failed permanently.
func (e *Server) isAbandoned() bool {
	f, _ := e.latch.get()
	return f != nil && !f.Full()
}

// StageInMemory makes the server stage atomic batches in memory, for the streams that exist. It is called
// once more when the topology was made, before anything is published. If that is not possible, batches are
// staged on disk, which is as correct and about half as fast.
func (e *Server) StageInMemory() {
	if err := e.staging.link(topology.StreamCompletions,
		topology.BucketStream(topology.BucketSessions)); err != nil {
		e.log.Debug().Err(err).Msg("atomic batches are staged on disk")
	}
}

// Fail makes the server fail, so that its supervisor restarts it.
func (e *Server) Fail(cause error) {
	select {
	case e.failed <- cause:
	default: // it has failed already
	}
}

// forgetFailure drops a failure that is the server's before this one.
func (e *Server) forgetFailure() {
	select {
	case cause := <-e.failed:
		e.log.Debug().Err(cause).Msg("a failure of the server before is forgotten")
	default:
	}
}

func (e *Server) start() (*server.Server, error) {
	e.staging.sever()
	log := &serverLog{log: e.log, onError: e.noteWriteError, onWarning: e.noteRecordError}
	ns, err := server.NewServer(&server.Options{
		ServerName:             "verifyd",
		Host:                   "127.0.0.1",
		Port:                   e.port,
		Username:               e.endpoint.User,
		Password:               e.endpoint.Password,
		NoSigs:                 true, // the program handles signals
		DisableJetStreamBanner: true,
		JetStream:              true,
		StoreDir:               filepath.Join(e.dataDir, storeFolder),
		JetStreamMaxStore:      e.storeBytes,
		JetStreamMaxMemory:     64 << 20, // we have no memory streams
		SyncAlways:             e.sync != SyncInterval,
	})
	if err != nil {
		return nil, fmt.Errorf("configure the embedded NATS server: %w", err)
	}
	ns.SetLogger(log, false, false)
	ns.Start()
	if !ns.ReadyForConnections(serverReady) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, fmt.Errorf("start the embedded NATS server: %w", log.reason())
	}
	addr, ok := ns.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("the embedded NATS server listens on %v, not TCP", ns.Addr())
	}
	e.port = addr.Port
	e.endpoint.URL = "nats://" + addr.String()
	if err := writeEndpoint(filepath.Join(e.dataDir, EndpointFile), e.endpoint); err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, err
	}
	return ns, nil
}

// setRunning records which server runs now; nil: none.
func (e *Server) setRunning(ns *server.Server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = ns
	if ns == nil {
		e.ready = make(chan struct{})
	} else {
		close(e.ready)
	}
}

// Failure returns why the store must not be used, or nil. It also asks the filesystem: a sync may end with
// success although the filesystem could write no more. A filesystem that is healthy after an acknowledgement
// was healthy at its sync.
func (e *Server) Failure() error {
	if f, _ := e.latch.get(); f != nil {
		return f
	}
	if err := e.probe.fault(); err != nil {
		e.latch.note(&Failure{Stream: "its filesystem", At: time.Now(), Cause: err})
		f, _ := e.latch.get()
		return f
	}
	return nil
}

// Failed returns a channel that is closed when the store fails the next time, or has failed.
func (e *Server) Failed() <-chan struct{} {
	_, failed := e.latch.get()
	return failed
}

// writeError begins the line that the server logs, once for each stream, when a write or a sync of a stream's
// file has failed. After that it refuses all writes to the stream, mostly without an answer, and serves reads
// from memory.
const writeError = "Critical write error"

// noteWriteError finds the failure of a stream in a line of the server's log. The staging stores of atomic
// batches, which have names of their own, do not count: no caller got an answer that a batch was stored.
func (e *Server) noteWriteError(format string, args []any) {
	name, rest, ok := ofFilestore(format)
	if !ok || !strings.HasPrefix(rest, writeError) {
		return
	}
	cause := errors.New(rest)
	if len(args) > 0 {
		if err, ok := args[0].(error); ok {
			cause = err
		}
	}
	f := &Failure{Stream: name, At: time.Now(), Cause: cause}
	if f.Full() && slices.Contains(topology.Unsynced, name) {
		return // it lost only what it may lose; the health monitor reopens it
	}
	e.latch.note(f)
}

// ofFilestore finds the stream of ours that a line of the server's log is about, and what follows its name.
func ofFilestore(format string) (stream, rest string, ok bool) {
	stream, rest, ok = strings.Cut(strings.TrimPrefix(format, "Filestore ["), "] ")
	return stream, rest, ok && slices.Contains(topology.StreamNames(), stream)
}
