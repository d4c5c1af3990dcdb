package dashboard

import "time"

// SetLook changes how often an open page looks by itself, before the handler is used.
func (h *Handler) SetLook(d time.Duration) { h.look = d }
