package callback

import (
	"context"
	"net"

	"verifyd/sessions/wire"
)

// path leads to a receiver's address: the wire, and the connection that carries the receiver's TLS. That is
// the wire itself or, if the egress proxy is spoken to over TLS, that session.
type path struct {
	wire  *wire.Wire
	over  net.Conn
	outer *wire.Records // of the session with the egress proxy; nil if there is none
	leave func()        // what Admit returned for it
}

// close closes the path without a close_notify, which could block on a peer that reads nothing.
func (p path) close() {
	_ = p.wire.Close()
	if p.leave != nil {
		p.leave()
	}
}

func dialPath(ctx context.Context, dial DialFunc, address string) (path, error) {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return path{}, err
	}
	w, err := wire.New(conn)
	if err != nil {
		_ = conn.Close()
		return path{}, err
	}
	return path{wire: w, over: w}, nil
}
