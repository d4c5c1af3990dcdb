//go:build !unix

package wire

func (w *Wire) readArrived(b []byte) (int, error) { return w.readSoon(b) }
